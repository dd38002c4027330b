#include "copus/sim/oracle.h"

#include <algorithm>
#include <cmath>

namespace copus {
namespace {

constexpr std::size_t kIntervals = 600;

// Returns the grid's losses from the start to the last one, all of `losses` included.
std::vector<double> grid(const LossCurve& curve, const std::vector<double>& losses) {
  // The grid is even in the logarithm of the loss above the floor, and so in the logarithm of
  // steps. Both ends are added as they are, because a rounded end may lie outside and be erased.
  std::vector<double> all = losses;
  all.push_back(curve.start_loss);
  const double first = std::log(curve.start_loss - curve.floor);
  const double last = std::log(losses.back() - curve.floor);
  for (std::size_t i = 1; i < kIntervals; ++i) {
    const double part = static_cast<double>(i) / kIntervals;
    all.push_back(curve.floor + std::exp(first + part * (last - first)));
  }
  std::sort(all.begin(), all.end(), std::greater<>());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  std::erase_if(all, [&](double loss) { return loss > curve.start_loss || loss < losses.back(); });
  return all;
}

// Groups of configurations that place the state alike. Within a group a switch costs next to
// nothing.
struct Placements {
  std::vector<std::size_t> of;          // by candidate
  std::vector<const Candidate*> first;  // by placement
};

Placements placements_of(const std::vector<Candidate>& candidates) {
  Placements found;
  for (const Candidate& candidate : candidates) {
    const auto same = std::find_if(found.first.begin(), found.first.end(), [&](const Candidate* c) {
      return same_placement(c->at.plan, candidate.at.plan);
    });
    found.of.push_back(static_cast<std::size_t>(same - found.first.begin()));
    if (same == found.first.end()) found.first.push_back(&candidate);
  }
  return found;
}

// Returns how much longer a second takes on average because of checkpoints and failures. A failure
// loses half a checkpoint interval on average.
double stretch(const FailureOptions& f) {
  if (f.between <= Seconds()) return 1;
  return (1 + f.checkpoint / f.checkpoint_every) *
         (1 + (f.checkpoint_every / 2 + f.restart) / f.between);
}

// The configuration from which the best way reaches another one at a point of the grid, and the
// pause of that switch.
struct Came {
  std::size_t from;
  Seconds pause;
};

}  // namespace

SimOutcome fastest_way(const World& world, const std::vector<Candidate>& candidates,
                       const std::vector<double>& losses) {
  const std::vector<double> points = grid(world.curve, losses);
  const Placements placements = placements_of(candidates);
  const std::size_t n = candidates.size(), m = placements.first.size();
  std::vector<Seconds> step_time(n), pause(m * m);
  for (std::size_t c = 0; c < n; ++c)
    step_time[c] = world.step_time(candidates[c]) * stretch(world.failures);
  for (std::size_t a = 0; a < m; ++a) {
    for (std::size_t b = 0; b < m; ++b) {
      pause[a * m + b] = a == b ? world.in_place_pause
                                : world.pause(placements.first[a]->at, placements.first[b]->at);
    }
  }

  std::vector<Seconds> time(n);
  std::vector<std::vector<Came>> came;
  SimOutcome outcome;
  const auto note = [&](double loss) {
    const bool wanted = std::find(losses.begin(), losses.end(), loss) != losses.end();
    if (wanted) {
      outcome.crossings.push_back(
          {*std::min_element(time.begin(), time.end()), loss, 0, Seconds()});
    }
  };
  note(points.front());
  for (std::size_t i = 0; i + 1 < points.size(); ++i) {
    // Switches happen at the beginning of an interval. Before the first one there is no state to
    // move.
    std::vector<Came> here(n);
    std::vector<std::size_t> best(m, n);
    for (std::size_t c = 0; c < n; ++c) {
      std::size_t& b = best[placements.of[c]];
      if (b == n || time[c] < time[b]) b = c;
    }
    std::vector<Seconds> moved = time;
    for (std::size_t c = 0; c < n; ++c) {
      here[c] = {c, Seconds()};
      for (std::size_t p = 0; p < m && i > 0; ++p) {
        const Seconds pausing = pause[p * m + placements.of[c]];
        if (time[best[p]] + pausing < moved[c]) {
          moved[c] = time[best[p]] + pausing;
          here[c] = {best[p], pausing};
        }
      }
    }
    came.push_back(here);
    const double progress =
        world.curve.progress_at(points[i + 1]) - world.curve.progress_at(points[i]);
    const double critical = std::sqrt(world.curve.critical_batch(points[i]) *
                                      world.curve.critical_batch(points[i + 1]));
    for (std::size_t c = 0; c < n; ++c) {
      const auto batch = static_cast<double>(candidates[c].at.global_batch);
      time[c] = moved[c] + progress / world.law.step(batch, critical) * step_time[c];
    }
    note(points[i + 1]);
  }

  // Follows the fastest way back from the end.
  std::size_t at =
      static_cast<std::size_t>(std::min_element(time.begin(), time.end()) - time.begin());
  std::vector<std::size_t> way(came.size());
  for (std::size_t i = came.size(); i-- > 0;) {
    way[i] = at;
    at = came[i][at].from;
  }
  outcome.points.push_back({Seconds(), points.front(), 0, Seconds()});
  for (std::size_t i = 0; i < way.size(); ++i) {
    const std::size_t c = way[i];
    const Candidate& candidate = candidates[c];
    if (i == 0 || c != way[i - 1]) {
      if (i > 0) {
        outcome.pause += came[i][c].pause;
        outcome.time += came[i][c].pause;
        ++outcome.switches;
        if (placements.of[c] != placements.of[way[i - 1]]) ++outcome.layout_switches;
      }
      outcome.phases.push_back({outcome.time, candidate.at});
    }
    const double progress =
        world.curve.progress_at(points[i + 1]) - world.curve.progress_at(points[i]);
    const double critical = std::sqrt(world.curve.critical_batch(points[i]) *
                                      world.curve.critical_batch(points[i + 1]));
    const auto batch = static_cast<double>(candidate.at.global_batch);
    const double steps = progress / world.law.step(batch, critical);
    outcome.time += steps * step_time[c];
    const double samples = outcome.points.back().samples + steps * batch;
    outcome.points.push_back({outcome.time, points[i + 1], samples, outcome.pause});
    for (SimPoint& crossing : outcome.crossings) {
      if (crossing.loss == points[i + 1]) crossing.samples = samples;
    }
  }
  outcome.samples = static_cast<std::int64_t>(outcome.points.back().samples);
  outcome.reached = true;
  return outcome;
}

}  // namespace copus
