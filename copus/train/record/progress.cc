#include "copus/train/record/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "copus/base/standard_streams.h"
#include "copus/base/text.h"
#include "copus/goodput/configuration.h"

namespace copus {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTerminalEvery(100);
constexpr std::chrono::seconds kPlainEvery(30);

bool known(const std::optional<double>& value) {
  return value.has_value() && std::isfinite(*value) && *value >= 0;
}

// Logs steps 1, 2, 5, 10, 20, 50, 100, then every 100, so that the log of ten steps and that of a
// million are both readable.
bool is_logged_step(std::int64_t step) {
  if (step >= 100) return step % 100 == 0;
  return step == 1 || step == 2 || step == 5 || step == 10 || step == 20 || step == 50;
}

bool is_terminal(std::FILE* out) {
  const char* kind = std::getenv("TERM");
  if (kind != nullptr && std::string_view(kind) == "dumb") return false;
  return ::isatty(::fileno(out)) == 1;
}

// Leaves one column free: some terminals wrap a line that fills the last column, and then the line
// cannot be rewritten in place.
std::string cut_to_width(std::string text, std::FILE* out) {
  const std::size_t columns = output_columns(::fileno(out));
  if (text.size() > columns - 1) text.resize(columns - 1);
  return text;
}

void show_live(std::FILE* out, const std::string& line) {
  std::fputs(fmt::format("\r{}\x1b[K", cut_to_width(line, out)).c_str(), out);
}

struct Message {
  std::string operator()(const RestartEvent& e) const {
    if (e.from.empty()) return "";
    return fmt::format("going on from {}: step {}, {}", e.from, e.step,
                       counted(e.samples, "sample"));
  }
  std::string operator()(const EvalEvent& e) const {
    return fmt::format("step {}  held-out loss {:.4f}", e.step, e.loss.value_or(NAN));
  }
  std::string operator()(const DecisionEvent& e) const {
    if (e.action != DecisionAction::kSwitch) return "";
    return fmt::format("step {}  {}", e.step, e.why);
  }
  std::string operator()(const ReconfigureEvent& e) const {
    if (e.done) return "";
    return fmt::format("step {}  not moved to {}: {}; going on as before", e.step,
                       to_text({e.to, e.global_batch_to}), e.error);
  }
  std::string operator()(const CheckpointEvent& e) const {
    if (e.error.empty()) return "";
    return fmt::format("CHECKPOINT OF STEP {} NOT SAVED: {}", e.step, e.error);
  }
  // A run that stops prints the reason when it ends, so there is no message here.
  std::string operator()(const BadStepEvent& e) const {
    if (e.action == OnBadStep::kStop) return "";
    return fmt::format("{}; its samples are left out{}", describe(e),
                       e.from.empty() ? "" : fmt::format(", and the run goes back to {}", e.from));
  }
  template <typename Other>
  std::string operator()(const Other& /*event*/) const {
    return "";
  }
};

}  // namespace

std::string format_step(const StepEvent& step, std::optional<std::int64_t> last_step,
                        std::optional<Seconds> remaining) {
  std::string text = fmt::format("step {}", step.step);
  if (last_step) text += fmt::format("/{}", *last_step);
  text += fmt::format("  loss {:.4f}", step.loss);
  if (known(step.tokens_per_s) && step.tokens_per_s > 0) {
    text += fmt::format("  {} tok/s", short_count(step.tokens_per_s));
  }
  if (known(step.mfu)) text += fmt::format("  MFU {:.1f}%", *step.mfu * 100);
  text += fmt::format("  batch {}  {}", step.global_batch, short_name(step.plan));
  if (known(step.gns)) text += fmt::format("  noise {}", short_count(*step.gns));
  if (remaining && known(remaining->v)) {
    text += fmt::format("  {} left", short_time(*remaining));
  }
  return text;
}

std::string describe(const BadStepEvent& event) {
  return fmt::format("step {}: loss {}, gradient norm {}: {}; the weights are as after step {}",
                     event.step, event.loss.value_or(NAN), event.grad_norm.value_or(NAN), event.why,
                     event.step - 1);
}

std::string message_of(const Event& event) { return std::visit(Message(), event); }

Progress::Progress(std::FILE* out) : out_(out), terminal_(is_terminal(out)) {
  if (!terminal_) last_shown_ = Clock::now();
}

void Progress::set_outlook(std::optional<std::int64_t> last_step,
                           std::function<std::optional<Seconds>()> remaining) {
  last_step_ = last_step;
  remaining_ = std::move(remaining);
}

Result<void> Progress::take(const TimedEvent& event) {
  if (const auto* taken = std::get_if<StepEvent>(&event.event)) step(*taken);
  if (const std::string message = message_of(event.event); !message.empty()) say(message);
  if (std::holds_alternative<EndEvent>(event.event)) finish();
  return {};
}

std::string Progress::line_of(const StepEvent& step) const {
  return format_step(step, last_step_, remaining_ ? remaining_() : std::nullopt);
}

void Progress::step(const StepEvent& step) {
  const auto now = Clock::now();
  if (!terminal_) {
    if (!is_logged_step(step.step) && now - last_shown_ < kPlainEvery) return;
    last_shown_ = now;
    std::fputs((line_of(step) + "\n").c_str(), out_);
    std::fflush(out_);
    return;
  }
  last_ = line_of(step);
  pending_ = true;
  if (live_ && now - last_shown_ < kTerminalEvery) return;
  last_shown_ = now;
  show_live(out_, last_);
  std::fflush(out_);
  pending_ = false;
  live_ = true;
}

void Progress::say(const std::string& message) {
  if (live_) std::fputs("\r\x1b[K", out_);
  std::fputs((message + "\n").c_str(), out_);
  if (live_) {
    show_live(out_, last_);
    pending_ = false;
  }
  std::fflush(out_);
}

void Progress::finish() {
  if (!live_) return;
  if (pending_) show_live(out_, last_);
  std::fputs("\n", out_);
  std::fflush(out_);
  pending_ = false;
  live_ = false;
}

}  // namespace copus
