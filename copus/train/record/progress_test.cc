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

StepLine full_line() {
  return {.step = 120,
          .last_step = 300,
          .loss = 2.34561,
          .tokens_per_s = 41234,
          .mfu = 0.31,
          .global_batch = 32,
          .plan = "dp2.tp1.pp2.mb4",
          .noise_scale = 120,
          .remaining_s = 123};
}

StepLine at_step(std::int64_t step) {
  StepLine line;
  line.step = step;
  line.loss = 1;
  return line;
}

std::string tokens_per_s(double n) {
  StepLine line = at_step(1);
  line.tokens_per_s = n;
  return format_step(line).substr(std::string("step 1  loss 1.0000").size());
}

std::string remaining(double seconds) {
  StepLine line = at_step(1);
  line.remaining_s = seconds;
  return format_step(line).substr(std::string("step 1  loss 1.0000").size());
}

TEST(FormatStep, SaysAllThatIsKnown) {
  EXPECT_EQ(format_step(full_line()),
            "step 120/300  loss 2.3456  41.2k tok/s  MFU 31.0%  batch 32  dp2.tp1.pp2.mb4  "
            "noise 120  2m03s left");
}

TEST(FormatStep, LeavesOutWhatIsNot) {
  EXPECT_EQ(format_step(at_step(7)), "step 7  loss 1.0000");
  StepLine line = full_line();
  line.last_step.reset();
  line.mfu.reset();
  line.noise_scale = std::nan("");
  line.remaining_s = HUGE_VAL;
  EXPECT_EQ(format_step(line), "step 120  loss 2.3456  41.2k tok/s  batch 32  dp2.tp1.pp2.mb4");
  line = at_step(7);
  line.loss = std::nan("");
  EXPECT_EQ(format_step(line), "step 7  loss nan");
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

TEST(Progress, ElsewhereThanOnATerminalSomeStepsAreWholeLines) {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* out = ::open_memstream(&text, &size);
  ASSERT_NE(out, nullptr);
  Progress progress(out);
  std::string want;
  for (int step = 1; step <= 350; ++step) {
    if (step == 8) {
      progress.say("switched");
      want += "switched\n";
    }
    progress.step(at_step(step));
    for (const int shown : {1, 2, 5, 10, 20, 50, 100, 200, 300}) {
      if (step == shown) want += format_step(at_step(step)) + "\n";
    }
  }
  progress.finish();
  std::fclose(out);
  EXPECT_EQ(std::string(text, size), want);
  std::free(text);
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

  // All that was shown so far; a newline reaches a terminal as "\r\n". The marker is taken off.
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

  static std::string live(const StepLine& line) {
    return fmt::format("\r{}\x1b[K", format_step(line));
  }

  int terminal_ = -1;
  std::FILE* out_ = nullptr;
};

TEST_F(OnATerminal, TheLineIsRewrittenInPlaceAndTheLastIsShown) {
  Progress progress(out_);
  progress.step(at_step(1));
  EXPECT_EQ(shown(), live(at_step(1)));
  for (int step = 2; step <= 1000; ++step) progress.step(at_step(step));
  progress.finish();
  const std::string rest = shown();
  EXPECT_TRUE(rest.ends_with(live(at_step(1000)) + "\r\n")) << rest;
  EXPECT_LT(rest.size(), 500 * live(at_step(1000)).size()) << "more than ten a second";
  progress.finish();
  EXPECT_EQ(shown(), "");
}

TEST_F(OnATerminal, MessagesGoAboveTheLine) {
  Progress progress(out_);
  progress.say("before");
  EXPECT_EQ(shown(), "before\r\n");
  progress.step(at_step(1));
  progress.say("between");
  EXPECT_EQ(shown(), live(at_step(1)) + "\r\x1b[Kbetween\r\n" + live(at_step(1)));
}

TEST_F(OnATerminal, TheLineIsCutToTheWidth) {
  set_columns(30);
  Progress progress(out_);
  progress.step(full_line());
  EXPECT_EQ(shown(), "\rstep 120/300  loss 2.3456  41\x1b[K");
}

}  // namespace
}  // namespace copus
