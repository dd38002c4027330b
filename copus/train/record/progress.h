// What the user sees of a run: one live line on a terminal, plain lines elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>

#include "copus/events/event_stream.h"

namespace copus {

// "step 120/300  loss 2.3456  41.2k tok/s  MFU 31.0%  batch 32  dp2.tp1.pp2.mb4  noise 120  2m03s
// left". `last_step`: the run's last step, if it is known.
std::string format_step(const StepEvent& step, std::optional<std::int64_t> last_step,
                        std::optional<Seconds> remaining);

// "step 7: loss nan, gradient norm 3: the loss is nan; the weights are as after step 6". Says what
// was wrong with the step, but not what the run does about it.
std::string describe(const BadStepEvent& event);
// Returns what the user is told about an event other than a step; "" if nothing.
std::string message_of(const Event& event);

// Shows steps as the live line and other events as messages above it. The end of the run ends the
// live line.
class Progress final : public EventSink {
 public:
  // On a terminal the line is rewritten in place, at most ten times a second; elsewhere a whole
  // line is printed at steps 1, 2, 5, 10, 20, 50, 100 and then every 100, and at least every 30
  // seconds.
  explicit Progress(std::FILE* out);

  // Sets what no event says: the run's last step, and the time that remains. Each step calls
  // `remaining`, so what it refers to must outlive the last step.
  void set_outlook(std::optional<std::int64_t> last_step,
                   std::function<std::optional<Seconds>()> remaining);
  Result<void> take(const TimedEvent& event) override;
  // Prints a message that is not from an event, on a line of its own above the live line.
  void say(const std::string& message);

 private:
  void step(const StepEvent& step);
  // Ends the live line, so that the next output starts on a new line.
  void finish();
  std::string line_of(const StepEvent& step) const;

  std::FILE* out_;
  bool terminal_;
  std::optional<std::int64_t> last_step_;
  std::function<std::optional<Seconds>()> remaining_;
  std::chrono::steady_clock::time_point last_shown_;
  std::string last_;  // the live line
  bool pending_ = false;
  bool live_ = false;
};

}  // namespace copus
