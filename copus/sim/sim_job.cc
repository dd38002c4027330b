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
      losses_(options.seed ^ 0xd1b54a32d192ed03ULL),
      now_(std::move(start)),
      step_time_(world.step_time(now_)),
      loss_(world.curve.start_loss),
      noted_loss_(loss_) {
  outcome_.phases.push_back({Seconds(), now_.at});
  outcome_.points.push_back({Seconds(), loss_, 0, Seconds()});
  next_failure_ = time_to_failure();
}

bool SimJob::done() const { return outcome_.reached || steps_taken_ >= options_.most_steps; }

Seconds SimJob::time_to_failure() {
  if (world_.failures.between <= Seconds()) return Seconds(INFINITY);
  return Seconds(std::exponential_distribution<double>(1 / world_.failures.between.v)(failures_));
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
  report.time =
      step_time_ * std::exp(world_.step_jitter * std::normal_distribution<double>()(random_));

  progress_ += world_.law.step(batch, critical);
  loss_ = world_.curve.loss_at(progress_);
  ++steps_taken_;
  ++outcome_.steps;
  outcome_.samples += now_.at.global_batch;
  outcome_.time += report.time;
  outcome_.reached = loss_ <= options_.losses.back();
  note();
  report.step = outcome_.steps;
  report.samples = outcome_.samples;
  report.loss =
      loss_ + world_.loss_noise / std::sqrt(batch) * std::normal_distribution<double>()(losses_);
  report.loss_begins_anew = std::exchange(loss_begins_anew_, false);
  if (!outcome_.reached) save_or_fail();
  return report;
}

// Notes crossings, and a point if the curve has moved visibly since the last one: the plot needs no
// more.
void SimJob::note() {
  const SimPoint here{outcome_.time, loss_, static_cast<double>(outcome_.samples), outcome_.pause};
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
  if (f.between <= Seconds()) return;
  if (outcome_.time >= next_failure_) {
    // The run repeats the steps since the last checkpoint.
    ++outcome_.failures;
    outcome_.lost += outcome_.time - saved_.t + f.restart;
    outcome_.time += f.restart;
    progress_ = saved_.progress;
    loss_ = world_.curve.loss_at(progress_);
    outcome_.steps = saved_.steps;
    outcome_.samples = saved_.samples;
    loss_begins_anew_ = true;
    saved_.t = outcome_.time;
    next_failure_ = outcome_.time + time_to_failure();
  } else if (outcome_.time - saved_.t >= f.checkpoint_every) {
    outcome_.time += f.checkpoint;
    outcome_.lost += f.checkpoint;
    saved_ = {outcome_.time, progress_, outcome_.steps, outcome_.samples};
  }
}

std::optional<Seconds> SimJob::remaining() const { return std::nullopt; }

Result<MoveReport> SimJob::move(const Configuration& to) {
  const bool in_place = same_placement(now_.at.plan, to.plan);
  MoveReport report;
  report.done = true;
  report.pause = in_place ? world_.in_place_pause : world_.pause(now_.at, to);
  outcome_.time += report.pause;
  outcome_.pause += report.pause;
  ++outcome_.switches;
  if (!in_place) ++outcome_.layout_switches;
  now_ = find_(to);
  step_time_ = world_.step_time(now_);
  outcome_.phases.push_back({outcome_.time, to});
  return report;
}

}  // namespace copus
