#include "copus/train/record/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "copus/goodput/configuration.h"

namespace copus {
namespace {

constexpr double kTerminalEvery_s = 0.1;
constexpr double kPlainEvery_s = 30;

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Three digits and a suffix: 41234 -> "41.2k". Whole numbers below a thousand stay whole.
std::string short_count(double n) {
  if (n < 1000 && n == std::trunc(n)) return fmt::format("{:.0f}", n);
  const char* suffix = "";
  for (const char* next : {"k", "M", "G", "T"}) {
    if (n < 999.5) break;  // from there on it would round to 1000
    n /= 1000;
    suffix = next;
  }
  const int decimals = n < 9.995 ? 2 : n < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}{}", n, decimals, suffix);
}

// The two largest units: 45s, 2m03s, 1h02m, 3d04h.
std::string short_time(double seconds) {
  const auto s = static_cast<std::int64_t>(std::llround(std::min(seconds, 1e12)));
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{}h{:02}m", s / 3600, s % 3600 / 60);
  return fmt::format("{}d{:02}h", s / 86400, s % 86400 / 3600);
}

bool known(const std::optional<double>& value) {
  return value.has_value() && std::isfinite(*value) && *value >= 0;
}

// A log stays readable from ten steps to a million: 1, 2, 5, 10, 20, 50, 100, then every 100.
bool is_logged_step(std::int64_t step) {
  if (step >= 100) return step % 100 == 0;
  return step == 1 || step == 2 || step == 5 || step == 10 || step == 20 || step == 50;
}

bool is_terminal(std::FILE* out) {
  const char* kind = std::getenv("TERM");
  if (kind != nullptr && std::string_view(kind) == "dumb") return false;
  return ::isatty(::fileno(out)) == 1;
}

// One column is left free: a terminal that wraps at its last one would not be rewritten in place.
std::string cut_to_width(std::string text, std::FILE* out) {
  winsize size = {};
  const bool answered = ::ioctl(::fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  const std::size_t columns = answered ? size.ws_col : 80;
  if (text.size() > columns - 1) text.resize(columns - 1);
  return text;
}

void show_live(std::FILE* out, const std::string& line) {
  std::fputs(fmt::format("\r{}\x1b[K", cut_to_width(line, out)).c_str(), out);
}

// What an event says besides the line; empty: nothing.
struct Message {
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
  template <typename Other>
  std::string operator()(const Other& /*event*/) const {
    return "";
  }
};

}  // namespace

std::string format_step(const StepEvent& step, std::optional<std::int64_t> last_step,
                        std::optional<double> remaining_s) {
  std::string text = fmt::format("step {}", step.step);
  if (last_step) text += fmt::format("/{}", *last_step);
  text += fmt::format("  loss {:.4f}", step.loss);
  if (known(step.tokens_per_s) && step.tokens_per_s > 0) {
    text += fmt::format("  {} tok/s", short_count(step.tokens_per_s));
  }
  if (known(step.mfu)) text += fmt::format("  MFU {:.1f}%", *step.mfu * 100);
  text += fmt::format("  batch {}  {}", step.global_batch, short_name(step.plan));
  if (known(step.gns)) text += fmt::format("  noise {}", short_count(*step.gns));
  if (known(remaining_s)) text += fmt::format("  {} left", short_time(*remaining_s));
  return text;
}

Progress::Progress(std::FILE* out) : out_(out), terminal_(is_terminal(out)) {
  if (!terminal_) last_shown_s_ = now_s();
}

void Progress::set_outlook(std::optional<std::int64_t> last_step,
                           std::function<std::optional<double>()> remaining_s) {
  last_step_ = last_step;
  remaining_s_ = std::move(remaining_s);
}

Result<void> Progress::take(const TimedEvent& event) {
  if (const auto* taken = std::get_if<StepEvent>(&event.event)) step(*taken);
  const std::string message = std::visit(Message(), event.event);
  if (!message.empty()) say(message);
  return {};
}

std::string Progress::line_of(const StepEvent& step) const {
  return format_step(step, last_step_, remaining_s_ ? remaining_s_() : std::nullopt);
}

void Progress::step(const StepEvent& step) {
  const double now = now_s();
  if (!terminal_) {
    if (!is_logged_step(step.step) && now - last_shown_s_ < kPlainEvery_s) return;
    last_shown_s_ = now;
    std::fputs((line_of(step) + "\n").c_str(), out_);
    std::fflush(out_);
    return;
  }
  last_ = line_of(step);
  pending_ = true;
  if (live_ && now - last_shown_s_ < kTerminalEvery_s) return;
  last_shown_s_ = now;
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
