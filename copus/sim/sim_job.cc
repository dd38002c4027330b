#include "copus/sim/sim_job.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "copus/goodput/noise_prefix.h"
#include "copus/sim/sampled_norms.h"

namespace copus {

SimJob::SimJob(const World& world, const SimOptions& options, Candidate start,
               std::function<const Candidate&(const Configuration&)> find)
    : world_(world),
      options_(options),
      find_(std::move(find)),
      random_(options.seed),
      failures_(options.seed ^ 0x9e3779b97f4a7c15ULL),
      now_(std::move(start)),
      step_s_(world.step_s(now_)),
      loss_(world.curve.start_loss),
      noted_loss_(loss_) {
  outcome_.phases.push_back({0, now_.at});
  outcome_.points.push_back({0, loss_, 0, 0});
  next_failure_s_ = seconds_to_failure();
}

bool SimJob::done() const { return outcome_.reached || steps_taken_ >= options_.most_steps; }

double SimJob::seconds_to_failure() {
  if (world_.failures.between_s <= 0) return INFINITY;
  return std::exponential_distribution<double>(1 / world_.failures.between_s)(failures_);
}

Result<StepReport> SimJob::step() {
  const auto batch = static_cast<double>(now_.at.global_batch);
  const double critical = world_.curve.critical_batch(loss_);
  StepReport report;
  report.norms = {};
  const std::int64_t prefix =
      noise_prefix(now_.at.plan, now_.at.global_batch) * now_.at.plan.micro_batch;
  if (prefix > 0) {
    // Only the ratio of the two terms matters.
    const NoiseTerms truth{1, critical / world_.calibration};
    const auto replicas = static_cast<double>(now_.at.plan.dp);
    report.norms = sample_norms(truth, world_.noise_rank,
                                {static_cast<double>(prefix), batch / replicas, replicas}, random_);
  }
  report.seconds =
      step_s_ * std::exp(world_.step_jitter * std::normal_distribution<double>()(random_));

  progress_ += world_.law.step(batch, critical);
  loss_ = world_.curve.loss_at(progress_);
  ++steps_taken_;
  ++outcome_.steps;
  outcome_.samples += now_.at.global_batch;
  outcome_.seconds += report.seconds;
  outcome_.reached = loss_ <= options_.losses.back();
  note();
  report.step = outcome_.steps;
  report.samples = outcome_.samples;
  report.loss = loss_;
  if (!outcome_.reached) save_or_fail();
  return report;
}

// A point where the curve has moved visibly: the picture, and times to a loss in between, need no
// more.
void SimJob::note() {
  const SimPoint here{outcome_.seconds, loss_, static_cast<double>(outcome_.samples),
                      outcome_.pause_s};
  while (outcome_.crossings.size() < options_.losses.size() &&
         loss_ <= options_.losses[outcome_.crossings.size()]) {
    outcome_.crossings.push_back(here);
  }
  const double fall = world_.curve.start_loss - options_.losses.back();
  if (!outcome_.reached && noted_loss_ - loss_ < 0.002 * fall) return;
  noted_loss_ = loss_;
  outcome_.points.push_back(here);
}

void SimJob::save_or_fail() {
  const FailureOptions& f = world_.failures;
  if (f.between_s <= 0) return;
  if (outcome_.seconds >= next_failure_s_) {
    // What was done since the last checkpoint is done again.
    ++outcome_.failures;
    outcome_.lost_s += outcome_.seconds - saved_.t + f.restart_s;
    outcome_.seconds += f.restart_s;
    progress_ = saved_.progress;
    loss_ = world_.curve.loss_at(progress_);
    outcome_.steps = saved_.steps;
    outcome_.samples = saved_.samples;
    saved_.t = outcome_.seconds;
    next_failure_s_ = outcome_.seconds + seconds_to_failure();
  } else if (outcome_.seconds - saved_.t >= f.checkpoint_every_s) {
    outcome_.seconds += f.checkpoint_s;
    outcome_.lost_s += f.checkpoint_s;
    saved_ = {outcome_.seconds, progress_, outcome_.steps, outcome_.samples};
  }
}

std::optional<double> SimJob::remaining_s() const { return std::nullopt; }

Result<MoveReport> SimJob::move(const Configuration& to) {
  const bool in_place = same_placement(now_.at.plan, to.plan);
  MoveReport report;
  report.done = true;
  report.pause_s = in_place ? world_.in_place_pause_s : world_.pause_s(now_.at, to);
  outcome_.seconds += report.pause_s;
  outcome_.pause_s += report.pause_s;
  ++outcome_.switches;
  if (!in_place) ++outcome_.layout_switches;
  now_ = find_(to);
  step_s_ = world_.step_s(now_);
  outcome_.phases.push_back({outcome_.seconds, to});
  return report;
}

}  // namespace copus
