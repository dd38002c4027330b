// Derives a pipeline's time as the longest path through the schedule's graph of actions.
//
// Each path has one rank on which it spends the steady state. The path reaches this rank (fill),
// does the rank's work for all micro-batches, and leaves it (drain). In fill and in drain the path
// may instead go from its rank down to the last rank and back (a round trip). It then skips the
// warm-up forwards, or the cool-down backwards, that its rank does in that time. The pipeline's
// time is the maximum over ranks; for equal stages a path of the last rank is a longest one.
//
// Notation: p = pp, v = vp, m = micro-batches. F and B are the forward and the backward of one
// micro-batch on one rank; B = I + W has an input and a weight part. f = F/v and b = B/v are the
// times of one chunk. c = hop.
#include "copus/cost/pipeline.h"

#include <algorithm>
#include <cstdint>

namespace copus {
namespace {

double positive(double x) noexcept { return std::max(x, 0.0); }

struct Work {
  double forward = 0;
  double input = 0;
  double weight = 0;

  double backward() const noexcept { return input + weight; }
  double total() const noexcept { return forward + input + weight; }
  friend Work operator+(const Work& a, const Work& b) noexcept {
    return {a.forward + b.forward, a.input + b.input, a.weight + b.weight};
  }
  friend Work operator-(const Work& a, const Work& b) noexcept {
    return {a.forward - b.forward, a.input - b.input, a.weight - b.weight};
  }
  friend Work operator*(double k, const Work& a) noexcept {
    return {k * a.forward, k * a.input, k * a.weight};
  }
};

Work work_of(const ChunkTimes& t) noexcept {
  return {t.forward.v, t.backward_input.v, t.backward_weight.v};
}

// A pipeline as seen from one of its ranks.
struct RankView {
  Work own;     // all chunks of the rank
  Work chunk;   // one chunk of the rank
  Work before;  // one chunk of each rank before it
  Work after;   // one chunk of each rank after it
  double ranks_before = 0;
  double ranks_after = 0;
  double first_weight = 0;  // weight part of rank 0
};

// Hops in the steady state. A loop goes from one rank down to another and back. If it has n ranks,
// it holds n micro-batches. A path along the loop has one more pair of hops (one down, one up) for
// every micro-batch after the first, except for one in n, for which the path stays on its rank.
struct Loop {
  double pairs = 0;
  double slack = 0;  // seconds per pair for which the loop's ranks would be idle anyway
};

Loop loop_of(std::int64_t ranks, double loop_work, double bottleneck,
             std::int64_t micro_batches) noexcept {
  if (ranks < 2) return {};
  const auto n = static_cast<double>(ranks);
  const std::int64_t pairs = micro_batches - 1 - (micro_batches - 1 + ranks - 1) / ranks;
  return {static_cast<double>(pairs), positive((n * bottleneck - loop_work) / (n - 1))};
}

// Returns the time that the round trips in fill and drain add. If there are too few micro-batches
// for a steady state on this rank, a path has at most one round trip.
double round_trips(double trip, double skipped_forward, double skipped_backward,
                   bool steady) noexcept {
  const double first = positive(trip - skipped_forward);
  const double last = positive(trip - skipped_backward);
  return steady ? first + last : std::max(first, last);
}

// GPipe: each phase fills the pipeline once, so it has p-1 hops in a row.
//   T = (m+p-1)(F+B) + 2(p-1)c
// This is exact for uneven stages too, with the largest F and the largest B.
double gpipe_time(const PipelineShape& s, double all_ranks, double largest_forward,
                  double largest_backward, double hop) noexcept {
  return all_ranks +
         static_cast<double>(s.micro_batches - 1) * (largest_forward + largest_backward) +
         2 * static_cast<double>(s.pp - 1) * hop;
}

// 1F1B, PipeDream-Flush (arXiv 2104.04473, section 2.2.1). Rank r does not start forward i+p-r
// before backward i. So hops cost time not only in fill and drain, but in every turn of the loop
// from rank 0 to rank p-1 and back, which takes p(F+B) + 2(p-1)c for p micro-batches:
//   T = (m+p-1)(F+B) + 2(p-1)c + 2c(m-1 - ceil((m-1)/p))
// Exact for equal stages, any m and any c.
double one_f_one_b_time(double m, const RankView& rank, const Loop& loop, double c) noexcept {
  const double skipped = std::min(rank.ranks_after, m - 1);
  const double trip = rank.after.total() + 2 * rank.ranks_after * c;
  return rank.before.total() + m * rank.own.total() + 2 * rank.ranks_before * c +
         round_trips(trip, skipped * rank.own.forward, skipped * rank.own.backward(),
                     m >= rank.ranks_after + 2) +
         // The second round trip already contains ranks_after of the pairs.
         positive(loop.pairs - rank.ranks_after) * positive(2 * c - loop.slack);
}

// Returns the time of ZB-H1 after the last input part of a rank, the longest of these: the gradient
// goes up to rank 0, which then has one weight part left; this rank does the weight parts that it
// has put off; a rank on the way up does those that it has put off. The last case matters only if
// there are fewer micro-batches than ranks.
double zero_bubble_drain(double m, const RankView& rank, double c) noexcept {
  const double r = rank.ranks_before;
  if (r == 0) return rank.own.weight;
  const double way_up = rank.before.input + r * c;
  const double put_off = std::min(r, m - 1);
  const double on_the_way =
      put_off > 0 ? (1 - put_off / r) * way_up + (put_off + 1) * rank.before.weight / r : 0;
  return std::max(
      {way_up + rank.first_weight, (put_off + 1) * rank.own.weight, put_off < r ? on_the_way : 0});
}

// ZB-H1 (arXiv 2401.10241). With c = 0 and m >= p the bubble is (p-1)(F+I-W), because weight parts
// fill the rest. A path pays in full for the first p-1 pairs of hops of the loop, where it passes
// no weight parts. For each later pair it leaves out one W. With n = min(m, p) and
// L = m-1 - ceil((m-1)/p), paths of the last rank and of rank 0 give
//   T1 = (m+p-1)(F+I) + max(1, m-p+1)W + 2(p-1)c + 2c min(L, p-1)
//        + (2c-W)+ (L-(p-1))+ + (n-1)(W-I-c)+
//   T2 = (m+p-1)(F+I) + max(1, m-p+1)W + 2(p-1)c + (n-1)(W-F)
//   T = max(T1, T2)
// where x+ = max(0, x). T1's last term applies if the weight parts that later ranks have put off
// outlast the drain. T2 applies if W > F: rank 0 then drains slowly, because each of its input
// parts waits for a weight part. Exact for equal stages, any m, any c and any F, I and W.
double zero_bubble_time(double m, const RankView& rank, const Loop& loop, double c) noexcept {
  const Work& own = rank.own;
  const double p = rank.ranks_before + 1 + rank.ranks_after;
  const double skipped = std::min(rank.ranks_after, m - 1);
  // The number of weight parts before the last input part, and how many of them the round trip in
  // the drain skips.
  const double weights = positive(m - 1 - rank.ranks_before);
  const double skipped_weights = std::min(skipped, weights);
  const double trip = rank.after.forward + rank.after.input + 2 * rank.ranks_after * c;
  const double bare = std::min(loop.pairs, p - 1);
  return rank.before.forward + rank.ranks_before * c + m * (own.forward + own.input) +
         weights * own.weight + zero_bubble_drain(m, rank, c) +
         round_trips(trip, skipped * own.forward,
                     skipped * own.input + skipped_weights * own.weight,
                     m >= rank.ranks_after + 2) +
         positive(bare - rank.ranks_after) * positive(2 * c - loop.slack) +
         (loop.pairs - bare) * positive(2 * c - own.weight - loop.slack);
}

// Returns the time that hops add to interleaved 1F1B in Megatron-LM's order (arXiv 2104.04473,
// section 2.2.2). A rank runs p micro-batches through a chunk before it needs the input of its next
// chunk, and its warm-up has two forwards for each rank after it. So the steady state hides a hop
// that is no longer than a pass, and hops cost time only in fill and drain through all pv chunks:
//   T = (mv+p-1)(f+b) + 2(pv-1)c                                              for c <= min(f, b)
// With a longer hop the ring of ranks is the bottleneck: the p hops round to the next chunk take
// longer than the p forwards (or backwards) in between. This happens in v-1 chunks of each group of
// p micro-batches except the first group. Above (f+b)/2 the loop of 1F1B also adds time. With
// g = m/p:
//   T += (v-1)p(g-1)(c - min(f, b))+ + q(2c - f - b)+
//   q = floor((p-1)g/2), but floor((p-2)/2) for g = 1
// Exact for equal chunks up to c = (f+b)/2; above that a lower bound.
double interleaved_hops(const PipelineShape& s, const Work& bottleneck, double slack,
                        double c) noexcept {
  if (s.pp == 1) return 0;
  const auto p = static_cast<double>(s.pp);
  const auto v = static_cast<double>(s.vp);
  const std::int64_t groups = s.micro_batches / s.pp;
  const double shorter = std::min(bottleneck.forward, bottleneck.backward()) / v;
  const double rings = (v - 1) * p * static_cast<double>(groups - 1);
  const auto loops = static_cast<double>(groups == 1 ? (s.pp - 2) / 2 : (s.pp - 1) * groups / 2);
  return 2 * (p * v - 1) * c + rings * positive(c - shorter - slack / v) +
         loops * positive(2 * c - (bottleneck.total() + slack) / v);
}

// Returns the time of interleaved 1F1B without hops. A round trip goes through the last chunk of
// each rank only, and skips two actions for each rank after its own.
double interleaved_time(const PipelineShape& s, const RankView& rank) noexcept {
  const auto m = static_cast<double>(s.micro_batches);
  const auto total = static_cast<double>(s.micro_batches * s.vp);
  const auto other_chunks = static_cast<double>((s.vp - 1) * s.pp);
  const double skipped = std::min(2 * rank.ranks_after, total - 1 - other_chunks);
  return rank.before.total() + m * rank.own.total() +
         round_trips(rank.after.total(), skipped * rank.chunk.forward,
                     skipped * rank.chunk.backward(),
                     total >= 2 * rank.ranks_after + other_chunks + 2);
}

double time_through(const PipelineShape& s, const RankView& rank, const Loop& loop,
                    double hop) noexcept {
  const auto m = static_cast<double>(s.micro_batches);
  if (s.kind == ScheduleKind::kInterleaved) return interleaved_time(s, rank);
  if (s.kind == ScheduleKind::kZeroBubble) return zero_bubble_time(m, rank, loop, hop);
  return one_f_one_b_time(m, rank, loop, hop);
}

// A pipeline's ends and its middle ranks, which are alike or have `middle` as the slowest.
struct Ends {
  Work first, middle, last;
  Work all_middles;
  double middles;  // number of middle ranks
};

// Returns the slowest loop (in time per micro-batch) through a rank of `own` work. The loop has all
// middle ranks. It has an end if the rank is that end, or if the end makes the loop slower.
Loop slowest_loop(const Ends& ends, double own, bool is_first, bool is_last, double c,
                  std::int64_t micro_batches) noexcept {
  double ranks = 0;
  double work = 0;
  double slowest = 0;
  for (int first = is_first ? 1 : 0; first < 2; ++first) {
    for (int last = is_last ? 1 : 0; last < 2; ++last) {
      const double n = ends.middles + first + last;
      const double sum =
          ends.all_middles.total() + first * ends.first.total() + last * ends.last.total();
      const double turn = (sum + 2 * (n - 1) * c) / std::max(n, 1.0);
      if (turn < slowest) continue;
      slowest = turn;
      ranks = n;
      work = sum;
    }
  }
  return loop_of(static_cast<std::int64_t>(ranks), work, own, micro_batches);
}

}  // namespace

Seconds pipeline_time(const PipelineShape& shape, const RankTimes& times) noexcept {
  const double hop = shape.pp > 1 ? times.hop.v : 0;
  const auto p = static_cast<double>(shape.pp);
  const double middles = positive(p - 2);
  const Work middle = shape.pp > 2 ? work_of(times.middle) : Work{};
  const Ends ends{work_of(times.first), middle, shape.pp > 1 ? work_of(times.last) : Work{},
                  (middles * times.middle_mean) * middle, middles};
  const Work all = ends.first + ends.all_middles + ends.last;
  if (shape.kind == ScheduleKind::kGPipe) {
    return Seconds(gpipe_time(
        shape, all.total(), std::max({ends.first.forward, ends.middle.forward, ends.last.forward}),
        std::max({ends.first.backward(), ends.middle.backward(), ends.last.backward()}), hop));
  }
  const Work& longer_end = ends.first.total() > ends.last.total() ? ends.first : ends.last;
  const Work& longest = ends.middle.total() > longer_end.total() ? ends.middle : longer_end;
  const double chunk = 1 / static_cast<double>(shape.vp);
  double time = 0;
  const auto consider = [&](const Work& own, const Work& before, double ranks_before) {
    const double ranks_after = p - 1 - ranks_before;
    const RankView rank{own,          chunk * own, chunk * before,   chunk * (all - before - own),
                        ranks_before, ranks_after, ends.first.weight};
    const Loop loop = slowest_loop(ends, own.total(), ranks_before == 0, ranks_after == 0, hop,
                                   shape.micro_batches);
    time = std::max(time, time_through(shape, rank, loop, hop));
  };
  consider(ends.first, {}, 0);
  if (shape.pp > 2) {
    consider(ends.middle, ends.first, 1);
    consider(ends.middle, all - ends.last - ends.middle, p - 2);
  }
  if (shape.pp > 1) consider(ends.last, all - ends.last, p - 1);
  if (shape.kind == ScheduleKind::kInterleaved) {
    const double slack = positive((p * longest.total() - all.total()) / std::max(1.0, p - 1));
    time += interleaved_hops(shape, longest, slack, hop);
  }
  return Seconds(time);
}

std::int64_t in_flight(const PipelineShape& shape, std::int64_t rank) noexcept {
  const std::int64_t m = shape.micro_batches;
  switch (shape.kind) {
    case ScheduleKind::kGPipe:
      return m;
    case ScheduleKind::k1F1B:
      return std::min(m, shape.pp - rank);
    case ScheduleKind::kInterleaved: {
      const std::int64_t warm_up = (shape.pp - rank - 1) * 2 + (shape.vp - 1) * shape.pp;
      return std::min(m * shape.vp, warm_up + 1);
    }
    case ScheduleKind::kZeroBubble:
      return std::min(m, shape.pp);
  }
  return m;
}

}  // namespace copus
