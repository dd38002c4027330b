#include "copus/sim/recorded_world.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "copus/base/mean.h"
#include "copus/goodput/step_times.h"

namespace copus {
namespace {

constexpr std::size_t kTimed = 200;  // most steps of a configuration that count as observations
constexpr std::size_t kWarmUp = 3;   // first steps of a phase, which do not count

// Returns the seconds of each configuration's steps.
std::map<std::string, std::vector<double>> recorded_times(const std::vector<RecordedRun>& runs) {
  std::map<std::string, std::vector<double>> times;
  for (const RecordedRun& run : runs) {
    std::size_t here = 0;
    std::string before;
    for (const RecordedStep& step : run.steps()) {
      const std::string name = to_text({step.plan, step.global_batch});
      here = name == before ? here + 1 : 0;
      before = name;
      if (here >= kWarmUp) times[name].push_back(step.time.v);
    }
  }
  return times;
}

}  // namespace

Result<RecordedWorld> recorded_world(const std::vector<RecordedRun>& runs,
                                     const std::vector<Candidate>& candidates, double believed) {
  RecordedWorld out;
  COPUS_TRY(out.fitted, fit_curve(runs, believed));
  out.world.curve = out.fitted.curve;
  out.world.law = out.fitted.law;

  const auto times = recorded_times(runs);
  auto steps = std::make_shared<std::map<std::string, Seconds>>();
  StepTimes belief;
  for (const Candidate& candidate : candidates) {
    const auto found = times.find(to_text(candidate.at));
    if (found == times.end()) continue;
    // The mean, not the median: a run's time is the sum of all its steps, slow ones included.
    const Seconds time(mean(found->second));
    (*steps)[found->first] = time;
    for (std::size_t i = 0; i < std::min(kTimed, found->second.size()); ++i) {
      belief.observe(candidate, time);
    }
  }
  out.configurations = static_cast<std::int64_t>(steps->size());
  for (const Candidate& candidate : candidates) {
    steps->try_emplace(to_text(candidate.at), belief.believe(candidate).time);
  }
  out.world.step_time = [steps](const Candidate& at) { return steps->at(to_text(at.at)); };

  double log_ratio = 0, measured = 0;
  for (const RecordedRun& run : runs) {
    for (const RecordedStep& step : run.steps()) {
      if (!step.gns || *step.gns <= 0) continue;
      log_ratio += std::log(out.fitted.curve.critical_batch(step.smoothed) / *step.gns);
      measured += 1;
    }
  }
  out.calibration = measured > 0 ? std::exp(log_ratio / measured) : believed;
  out.world.calibration = out.calibration;
  return out;
}

}  // namespace copus
