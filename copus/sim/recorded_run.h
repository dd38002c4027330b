// RecordedRun: a live run, read from its events.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "copus/events/event.h"
#include "copus/sim/sim_job.h"

namespace copus {

struct RecordedStep {
  Seconds t;     // end of the step, since the run's start event
  Seconds time;  // duration of the step
  double loss = 0;
  double smoothed = 0;  // mean over the last samples
  std::int64_t samples = 0;
  std::int64_t global_batch = 0;
  ParallelPlan plan;
  std::optional<double> gns;
};

class RecordedRun {
 public:
  // `losses`: falling. `window`: the number of samples over which a loss is averaged. Each sample's
  // loss is the one at which the run saw the sample for the first time.
  explicit RecordedRun(std::vector<double> losses, std::int64_t window)
      : losses_(std::move(losses)), window_(window) {}

  // Adds the next event. Steps that are repeated after a restart replace the lost ones. `where`
  // names the file and line in errors.
  Result<void> add(const TimedEvent& event, const std::string& where);
  // Adds the events of a whole file. Leaves out a last line without a newline, because it is still
  // being written.
  Result<void> read(const std::string& path);

  // Whether the last loss was reached.
  bool reached() const { return crossings_.size() == losses_.size(); }
  const std::vector<RecordedStep>& steps() const { return steps_; }
  std::int64_t window() const { return window_; }
  const std::optional<StartEvent>& start() const { return start_; }
  double smoothed() const { return steps_.empty() ? 0 : steps_.back().smoothed; }
  // Returns the run in the form of a simulated one.
  SimOutcome outcome() const;

 private:
  Result<void> add_step(const StepEvent& event, Seconds t, const std::string& where);
  void smooth(const RecordedStep& step);

  std::vector<double> losses_;
  std::int64_t window_;
  Seconds begin_;
  Seconds seen_;  // t of the last step, lost steps included
  std::optional<StartEvent> start_;
  std::vector<RecordedStep> steps_;
  std::deque<std::pair<std::int64_t, double>> recent_;  // batch and loss
  std::int64_t recent_samples_ = 0;
  double recent_sum_ = 0;
  std::vector<SimPoint> crossings_;
  std::int64_t switches_ = 0, layout_switches_ = 0;
  Seconds pause_;
};

}  // namespace copus
