// The phases of a run that moved: where it was, for how long, why it left, and what moving brought.
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
  // `steps`: done before it began.
  Phases(std::string plan, std::int64_t batch, GoodputKind kind, std::int64_t steps = 0);

  // A step belongs to the last phase; a move that was made begins one, for the reason of the
  // decision before it.
  Result<void> take(const TimedEvent& event) override;

  std::int64_t moves() const { return static_cast<std::int64_t>(phases_.size()) - 1; }
  Seconds pause() const;

  // Goodput over the run, pauses in it, of what it would have been had the run stayed
  // where it began: counted from the first step whose critical batch was known. `start_step`:
  // what a step takes there. Nothing where nothing was known.
  std::optional<double> gain(Seconds start_step) const;

  // A table: from step, layout, batch, steps, samples/s, loss at its end, pause and reason of the
  // move that began it.
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

  GoodputKind kind_;
  std::string reason_;  // of the last decision
  std::vector<Phase> phases_;
  std::int64_t steps_ = 0;
  // Since the critical batch is known: Goodput times seconds, and what it would be where the run
  // began, had that a speed of one sample a second.
  double progress_ = 0, stayed_ = 0;
  std::optional<double> critical_batch_;  // the last
};

}  // namespace copus
