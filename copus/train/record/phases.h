// Phases: the phases of a run, one per configuration (layout and batch): how long each lasted, why
// it began, and what the moves gained.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "copus/events/event_stream.h"
#include "copus/goodput/efficiency.h"

namespace copus {

class Phases final : public EventSink {
 public:
  // `steps`: the steps that the run had done before this start (after a resume).
  Phases(std::string plan, std::int64_t batch, std::int64_t steps = 0);

  // Adds a step to the last phase. A move that was made begins a new phase; its reason is that of
  // the decision before the move.
  Result<void> take(const TimedEvent& event) override;

  std::int64_t moves() const { return static_cast<std::int64_t>(phases_.size()) - 1; }
  Seconds pause() const;

  // Returns the run's samples/s x efficiency, pauses included, divided by what it would have been
  // in its first configuration. The root of the batch, which lr-aware Goodput has too, is no
  // progress that anybody measured. Counts from the first step whose critical batch was known;
  // empty if there was no such step. `start_step`: the time of a step in the first configuration.
  std::optional<double> gain(Seconds start_step) const;

  // Returns a table with a row per phase: first step, layout, batch, steps, samples/s, loss at its
  // end, and the pause and the reason of the move that began it.
  std::string table() const;

 private:
  struct Phase {
    std::string plan;
    std::int64_t batch = 0;
    std::int64_t first_step = 1;
    std::int64_t steps = 0;
    Seconds time{0};
    double loss = 0;
    std::string reason;
    Seconds pause{0};
  };
  void add(const StepEvent& step);
  void move(const ReconfigureEvent& move);

  std::string reason_;  // of the last decision
  std::vector<Phase> phases_;
  std::int64_t steps_ = 0;
  // Both count from the first step with a known critical batch. progress_: samples x efficiency.
  // stayed_: the same for a run that stays in its first configuration at one sample per second.
  double progress_ = 0, stayed_ = 0;
  std::optional<double> critical_batch_;  // the last known one
};

}  // namespace copus
