#include "copus/train/record/progress.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <string>

namespace copus {
namespace {

StepEvent full_step() {
  StepEvent e;
  e.step = 120;
  e.loss = 2.34561;
  e.tokens_per_s = 41234;
  e.mfu = 0.31;
  e.global_batch = 32;
  e.plan = parse_plan_text("dp2.tp1.pp2.mb4", "plan")->plan;
  e.gns = 120;
  return e;
}

StepEvent at_step(std::int64_t step) {
  StepEvent e;
  e.step = step;
  e.loss = 1;
  e.global_batch = 8;
  return e;
}

std::string line_at(std::int64_t step) { return format_step(at_step(step), {}, {}); }

std::string tokens_per_s(double n) {
  StepEvent e = at_step(1);
  e.tokens_per_s = n;
  const std::string line = format_step(e, {}, {}), begin = "step 1  loss 1.0000";
  return line.substr(begin.size(), line.find("  batch") - begin.size());
}

std::string remaining(double seconds) {
  return format_step(at_step(1), {}, Seconds(seconds)).substr(line_at(1).size());
}

void tell(Progress& progress, const Event& event) {
  ASSERT_TRUE(progress.take({Seconds(0), event}));
}

TEST(FormatStep, SaysAllThatIsKnown) {
  EXPECT_EQ(format_step(full_step(), 300, Seconds(123)),
            "step 120/300  loss 2.3456  41.2k tok/s  MFU 31.0%  batch 32  dp2.tp1.pp2.mb4  "
            "noise 120  2m03s left");
}

TEST(FormatStep, LeavesOutWhatIsNot) {
  EXPECT_EQ(line_at(7), "step 7  loss 1.0000  batch 8  dp1.tp1.pp1.mb1");
  StepEvent e = full_step();
  e.mfu.reset();
  e.gns = std::nan("");
  EXPECT_EQ(format_step(e, {}, Seconds(HUGE_VAL)),
            "step 120  loss 2.3456  41.2k tok/s  batch 32  dp2.tp1.pp2.mb4");
  e = at_step(7);
  e.loss = std::nan("");
  EXPECT_EQ(format_step(e, {}, {}), "step 7  loss nan  batch 8  dp1.tp1.pp1.mb1");
}

TEST(FormatStep, RatesHaveThreeDigitsAndASuffix) {
  EXPECT_EQ(tokens_per_s(0), "");
  EXPECT_EQ(tokens_per_s(0.5), "  0.50 tok/s");
  EXPECT_EQ(tokens_per_s(950), "  950 tok/s");
  EXPECT_EQ(tokens_per_s(99.94), "  99.9 tok/s");
  EXPECT_EQ(tokens_per_s(999.6), "  1.00k tok/s");
  EXPECT_EQ(tokens_per_s(1234), "  1.23k tok/s");
  EXPECT_EQ(tokens_per_s(542'400), "  542k tok/s");
  EXPECT_EQ(tokens_per_s(999'600), "  1.00M tok/s");
  EXPECT_EQ(tokens_per_s(12'345'678), "  12.3M tok/s");
}

TEST(FormatStep, TimeLeftHasTheTwoLargestUnits) {
  EXPECT_EQ(remaining(0), "  0s left");
  EXPECT_EQ(remaining(45.4), "  45s left");
  EXPECT_EQ(remaining(59.7), "  1m00s left");
  EXPECT_EQ(remaining(123), "  2m03s left");
  EXPECT_EQ(remaining(3725), "  1h02m left");
  EXPECT_EQ(remaining(3 * 86400 + 4 * 3600), "  3d04h left");
  EXPECT_EQ(remaining(-1), "");
}

// A file in memory, which is not a terminal, and the text that was written to it.
class Written {
 public:
  Written() : out_(::open_memstream(&text_, &size_)) {}
  Written(const Written&) = delete;
  Written& operator=(const Written&) = delete;
  ~Written() {
    std::fclose(out_);
    std::free(text_);
  }
  std::FILE* out() const { return out_; }
  std::string text() const {
    std::fflush(out_);
    return {text_, size_};
  }

 private:
  char* text_ = nullptr;
  std::size_t size_ = 0;
  std::FILE* out_;
};

TEST(Progress, ElsewhereThanOnATerminalSomeStepsAreWholeLines) {
  const Written written;
  Progress progress(written.out());
  std::string want;
  for (int step = 1; step <= 350; ++step) {
    if (step == 8) {
      progress.say("switched");
      want += "switched\n";
    }
    tell(progress, at_step(step));
    for (const int shown : {1, 2, 5, 10, 20, 50, 100, 200, 300}) {
      if (step == shown) want += line_at(step) + "\n";
    }
  }
  tell(progress, EndEvent());
  EXPECT_EQ(written.text(), want);
}

TEST(Progress, TheLineSaysWhereTheRunEnds) {
  const Written written;
  Progress progress(written.out());
  progress.set_outlook(20, [] { return std::optional(Seconds(45)); });
  tell(progress, at_step(1));
  EXPECT_EQ(written.text(), format_step(at_step(1), 20, Seconds(45)) + "\n");
}

TEST(Progress, EventsThatMatterAreMessages) {
  const Written written;
  Progress progress(written.out());
  EvalEvent eval;
  eval.step = 10;
  eval.loss = 4.25;
  tell(progress, eval);
  eval.loss = HUGE_VAL;
  tell(progress, eval);
  eval.loss.reset();
  tell(progress, eval);
  DecisionEvent decision;
  decision.step = 20;
  decision.why = "dp1.tp1.pp1.mb4 at batch 16: Goodput +14%";
  for (const DecisionAction action :
       {DecisionAction::kKeep, DecisionAction::kLater, DecisionAction::kSwitch}) {
    decision.action = action;
    tell(progress, decision);
  }
  ReconfigureEvent move;
  move.step = 20;
  move.to = parse_plan_text("dp1.tp1.pp1.mb4", "plan")->plan;
  move.global_batch_to = 16;
  move.done = true;
  tell(progress, move);
  move.done = false;
  move.error = "rank 1: out of memory";
  tell(progress, move);
  CheckpointEvent checkpoint;
  checkpoint.step = 30;
  checkpoint.path = "run/checkpoints/step-30";
  tell(progress, checkpoint);
  checkpoint.path.clear();
  checkpoint.error = "disk full";
  tell(progress, checkpoint);
  RestartEvent restart;
  tell(progress, restart);
  restart.from = "run/checkpoints/step-30";
  restart.step = 30;
  restart.samples = 1;
  tell(progress, restart);
  BadStepEvent bad;
  bad.step = 31;
  bad.loss = HUGE_VAL;
  bad.grad_norm = 2.5;
  bad.why = "the loss is inf";
  tell(progress, bad);
  bad.action = OnBadStep::kSkip;
  tell(progress, bad);
  bad.action = OnBadStep::kRollback;
  bad.from = "run/checkpoints/step-20";
  tell(progress, bad);
  tell(progress, StartEvent());
  tell(progress, EndEvent());
  EXPECT_EQ(written.text(),
            "step 10  held-out loss 4.2500\n"
            "step 10  held-out loss inf\n"
            "step 10  held-out loss nan\n"
            "step 20  dp1.tp1.pp1.mb4 at batch 16: Goodput +14%\n"
            "step 20  not moved to dp1.tp1.pp1.mb4 at batch 16: rank 1: out of memory; going on as "
            "before\n"
            "CHECKPOINT OF STEP 30 NOT SAVED: disk full\n"
            "going on from run/checkpoints/step-30: step 30, 1 sample\n"
            "step 31: loss inf, gradient norm 2.5: the loss is inf; the weights are as after step "
            "30; its samples are left out\n"
            "step 31: loss inf, gradient norm 2.5: the loss is inf; the weights are as after step "
            "30; its samples are left out, and the run goes back to run/checkpoints/step-20\n");
}

class OnATerminal : public testing::Test {
 protected:
  void SetUp() override {
    ::setenv("TERM", "xterm", 1);
    terminal_ = ::posix_openpt(O_RDWR | O_NOCTTY);
    if (terminal_ < 0 || ::grantpt(terminal_) != 0 || ::unlockpt(terminal_) != 0) {
      GTEST_SKIP() << "no pseudo-terminal here";
    }
    const int program_side = ::open(::ptsname(terminal_), O_RDWR | O_NOCTTY);
    ASSERT_GE(program_side, 0);
    out_ = ::fdopen(program_side, "w");
    set_columns(200);
  }
  void TearDown() override {
    if (out_ != nullptr) std::fclose(out_);
    if (terminal_ >= 0) ::close(terminal_);
  }

  void set_columns(unsigned short columns) const {
    winsize size = {};
    size.ws_row = 24;
    size.ws_col = columns;
    ASSERT_EQ(::ioctl(terminal_, TIOCSWINSZ, &size), 0);
  }

  // Returns all that was shown since the last call. A newline reaches a terminal as "\r\n". Writes
  // a marker, reads up to it, and removes it.
  std::string shown() {
    std::fputs("|", out_);
    std::fflush(out_);
    std::string all;
    char bytes[4096];
    while (all.empty() || all.back() != '|') {
      const ssize_t n = ::read(terminal_, bytes, sizeof bytes);
      if (n <= 0) break;
      all.append(bytes, static_cast<std::size_t>(n));
    }
    all.pop_back();
    return all;
  }

  static std::string live(std::int64_t step) { return fmt::format("\r{}\x1b[K", line_at(step)); }

  int terminal_ = -1;
  std::FILE* out_ = nullptr;
};

TEST_F(OnATerminal, TheLineIsRewrittenInPlaceAndTheLastIsShown) {
  Progress progress(out_);
  tell(progress, at_step(1));
  EXPECT_EQ(shown(), live(1));
  for (int step = 2; step <= 1000; ++step) tell(progress, at_step(step));
  tell(progress, EndEvent());
  const std::string rest = shown();
  EXPECT_TRUE(rest.ends_with(live(1000) + "\r\n")) << rest;
  EXPECT_LT(rest.size(), 500 * live(1000).size()) << "more than ten a second";
  tell(progress, EndEvent());
  EXPECT_EQ(shown(), "");
}

TEST_F(OnATerminal, MessagesGoAboveTheLine) {
  Progress progress(out_);
  progress.say("before");
  EXPECT_EQ(shown(), "before\r\n");
  tell(progress, at_step(1));
  progress.say("between");
  EXPECT_EQ(shown(), live(1) + "\r\x1b[Kbetween\r\n" + live(1));
}

TEST_F(OnATerminal, TheLineIsCutToTheWidth) {
  set_columns(30);
  Progress progress(out_);
  progress.set_outlook(300, nullptr);
  tell(progress, full_step());
  EXPECT_EQ(shown(), "\rstep 120/300  loss 2.3456  41\x1b[K");
}

}  // namespace
}  // namespace copus
