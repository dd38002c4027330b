// Measures what the norms for the noise scale cost, as a share of a training step.
//
// One trainer measures norms at every second step. Each such step is compared with the mean of its
// two neighbours; a figure is the median of many comparisons. Ranks are threads over Gloo, with one
// thread of computation each. Aim: under 1% of a step at the interval that the trainer chooses.
//
// The table has shares of wall time and of the CPU time of all ranks. CPU time leaves out waits,
// but shows small shares even if other programs run on the machine.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <vector>

#include "copus/base/median.h"
#include "copus/base/text.h"
#include "copus/spec/hf_config.h"
#include "copus/train/comm/rank_threads.h"
#include "copus/train/engine/trainer.h"

namespace copus {
namespace {

constexpr std::int64_t kSeqLen = 256;
constexpr double kSecondsPerRow = 6;
constexpr int kFewestPairs = 10, kMostPairs = 400;

// Results by one clock.
struct Measured {
  double step_s = 0;   // a step without norms
  double norms_s = 0;  // added by the norms
  double error_s = 0;  // standard error of norms_s

  std::string share(double interval) const {
    return fmt::format("{:.2f}% +- {:.2f}", 100 * norms_s / step_s / interval,
                       100 * error_s / step_s / interval);
  }
};

// Returns the standard error of the median of normally distributed numbers: 1.2533 times that of
// the mean.
double error_of_median(const std::vector<double>& x) {
  const double middle = median(x);
  std::vector<double> distance;
  for (const double each : x) distance.push_back(std::abs(each - middle));
  return 1.2533 * 1.4826 * median(distance) / std::sqrt(static_cast<double>(x.size()));
}

// `marks`: when each step began. The steps are alternately without and with norms; the first is
// without.
Measured compare(const std::vector<double>& marks) {
  const auto step = [&](std::size_t i) { return marks[i + 1] - marks[i]; };
  std::vector<double> without, difference;
  for (std::size_t i = 1; i + 2 < marks.size(); i += 2) {
    without.push_back(step(i + 1));
    difference.push_back(step(i) - (step(i - 1) + step(i + 1)) / 2);
  }
  return {median(without), median(difference), error_of_median(difference)};
}

struct Clocks {
  std::vector<double> wall, cpu;

  void mark() {
    const auto seconds = [](clockid_t clock) {
      timespec time{};
      ::clock_gettime(clock, &time);
      return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    };
    wall.push_back(seconds(CLOCK_MONOTONIC));
    cpu.push_back(seconds(CLOCK_PROCESS_CPUTIME_ID));
  }
};

// Returns the marks of rank 0. They stand for all ranks, because no rank begins a step before all
// ranks have done most of the last one.
Clocks measure(TrainerOptions options) {
  options.noise_every = 2;
  Clocks clocks;
  run_ranks(static_cast<int>(options.plan.gpus()), [&](int rank, GroupCache& groups) {
    const Result<Dataset> data =
        Dataset::open({"builtin"}, {.seq_len = kSeqLen, .vocab = options.model.vocab});
    const Result<std::unique_ptr<Trainer>> trainer = Trainer::create(groups, options);
    if (!data || !trainer) throw std::runtime_error("cannot start");
    std::int64_t consumed = 0;
    const auto step = [&](bool wants_norms) {
      const Result<StepResult> done = (*trainer)->step(*data, consumed);
      if (!done) throw std::runtime_error(done.error().message);
      if (done->norms.has_value() != wants_norms)
        throw std::runtime_error("norms: measured in the wrong steps");
      consumed += options.global_batch;
      return done->total.v;
    };
    step(true);
    step(false);
    const Tensor pair_s = at::full({1}, step(true) + step(false), at::kDouble);
    (*trainer)->mesh().world->all_reduce_max(pair_s);
    const int pairs = std::clamp(static_cast<int>(kSecondsPerRow / pair_s.item<double>()),
                                 kFewestPairs, kMostPairs);
    step(true);
    for (int i = 0; i < 2 * pairs + 1; ++i) {
      if (rank == 0) clocks.mark();
      step(i % 2 == 1);
    }
    if (rank == 0) clocks.mark();
  });
  return clocks;
}

ModelSpec small_model() {
  ModelSpec m;
  m.name = "llama-10m";
  m.layers = 8;
  m.hidden = 256;
  m.ffn = 704;
  m.heads = m.kv_heads = 4;
  m.head_dim = 64;
  m.vocab = 8192;
  m.max_positions = kSeqLen;
  return m;
}

int run() {
  const Result<ModelSpec> tiny = load_model("tiny");
  if (!tiny) return 1;
  struct Part {
    ModelSpec model;
    std::vector<std::int64_t> tokens;  // per replica
  };
  for (const auto& [untied, token_counts] :
       {Part{*tiny, {512, 2048, 8192}}, Part{small_model(), {512, 2048}}}) {
    std::vector<std::vector<std::string>> rows;
    for (const char* layout : {"dp=1", "dp=2", "tp=2", "pp=2", "dp=2,zero=1", "pp=2 tied"}) {
      for (const std::int64_t tokens : token_counts) {
        const std::string text = layout;
        TrainerOptions options;
        options.model = untied;
        options.model.tied_embeddings = text.ends_with("tied");
        const Result<PartialPlan> plan = parse_plan_text(text.substr(0, text.find(' ')), "plan");
        if (!plan) return 1;
        options.plan = plan->plan;
        options.seq_len = kSeqLen;
        options.global_batch = tokens / kSeqLen * options.plan.dp;
        const Clocks clocks = measure(options);
        const Measured wall = compare(clocks.wall), cpu = compare(clocks.cpu);
        const auto interval = static_cast<double>(noise_interval(options, /*updates=*/0));
        rows.push_back({text, std::to_string(tokens), human_seconds(wall.step_s), wall.share(1),
                        cpu.share(1), fmt::format("{}", interval), wall.share(interval),
                        cpu.share(interval), std::to_string(clocks.wall.size() / 2 - 1)});
      }
    }
    fmt::print("{} ({} parameters), micro-batch 1 x {} tokens, FP32\n{}\n", untied.name,
               human_count(static_cast<double>(untied.total_params())), kSeqLen,
               format_table({"layout", "tokens/replica", "step", "share", "of CPU time", "interval",
                             "share at the interval", "of CPU time", "pairs"},
                            rows));
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace copus

int main() { return copus::run(); }
