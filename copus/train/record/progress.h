// What a person sees of a run: one live line on a terminal, plain lines elsewhere.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

namespace copus {

struct StepLine {
  std::int64_t step = 0;
  std::optional<std::int64_t> last_step;  // when the end is known in steps
  double loss = 0;
  double tokens_per_s = 0;
  std::optional<double> mfu;  // 0 to 1
  std::int64_t global_batch = 0;
  std::string plan;  // short: dp2.tp1.pp2.mb4
  std::optional<double> noise_scale;
  std::optional<double> remaining_s;
};

// "step 120/300  loss 2.3456  41.2k tok/s  MFU 31.0%  batch 32  dp2.tp1.pp2.mb4  noise 120  2m03s
// left"
std::string format_step(const StepLine& line);

class Progress {
 public:
  // On a terminal the line is rewritten in place, at most ten times a second; elsewhere a whole
  // line is printed at steps 1, 2, 5, 10, 20, 50, 100 and then every 100, and at least every 30
  // seconds.
  explicit Progress(std::FILE* out);
  void step(const StepLine& line);
  // A message of its own line; the live line is kept below it.
  void say(const std::string& message);
  // Ends the live line, so that what follows starts on a fresh one.
  void finish();

 private:
  std::FILE* out_;
  bool terminal_;
  double last_shown_s_ = -1;
  StepLine last_;
  bool pending_ = false;
  bool live_ = false;
};

}  // namespace copus
