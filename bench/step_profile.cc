// Profiles a training step on a GPU: its kernels by time, and the gaps between them.
//
//     step_profile MODEL SEQ_LEN ROWS [TRACE.json]
//
// MODEL is a catalog name or a config.json. One rank computes one micro-batch of ROWS sequences in
// BF16. The trace (Chrome's format, for Perfetto) is kept only if a path is given. Kernel times are
// sums over kProfiled steps. The GPU is idle while no kernel of any stream runs.
#include <fmt/format.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "copus/base/seconds_since.h"
#include "copus/base/text.h"
#include "copus/spec/hf_config.h"
#include "copus/train/comm/rank_threads.h"
#include "copus/train/device/device.h"
#include "copus/train/engine/trainer.h"

namespace copus {
namespace {

constexpr int kWarmUp = 4, kTimed = 10, kProfiled = 3;
constexpr std::size_t kLongestName = 84, kRows = 32;

struct Kernels {
  struct Sum {
    int count = 0;
    double us = 0;
  };
  std::map<std::string, Sum> by_name;
  double busy_us = 0, span_us = 0;
};

// Reads the GPU's events of a trace: kernels, copies and fills.
Kernels read_kernels(const std::string& path) {
  std::ifstream file(path);
  const nlohmann::json trace = nlohmann::json::parse(file);
  Kernels kernels;
  std::vector<std::pair<double, double>> spans;
  for (const nlohmann::json& event : trace.at("traceEvents")) {
    const std::string category = event.value("cat", "");
    if (category != "kernel" && category != "gpu_memcpy" && category != "gpu_memset") continue;
    const double begin = event.at("ts").get<double>(), us = event.at("dur").get<double>();
    Kernels::Sum& sum = kernels.by_name[event.at("name").get<std::string>()];
    ++sum.count;
    sum.us += us;
    spans.emplace_back(begin, begin + us);
  }
  if (spans.empty()) return kernels;
  std::sort(spans.begin(), spans.end());
  double end = spans.front().first;
  for (const auto& [from, to] : spans) {
    kernels.busy_us += std::max(0.0, to - std::max(from, end));
    end = std::max(end, to);
  }
  kernels.span_us = end - spans.front().first;
  return kernels;
}

void print(const Kernels& kernels, double step_s) {
  std::vector<std::pair<std::string, Kernels::Sum>> order(kernels.by_name.begin(),
                                                          kernels.by_name.end());
  std::sort(order.begin(), order.end(),
            [](const auto& a, const auto& b) { return a.second.us > b.second.us; });
  std::vector<std::vector<std::string>> rows;
  double rest = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto& [name, sum] = order[i];
    if (i >= kRows) {
      rest += sum.us;
      continue;
    }
    rows.push_back({fmt::format("{:.3f}", sum.us / 1e3 / kProfiled),
                    fmt::format("{:.1f}%", 100 * sum.us / kernels.busy_us),
                    fmt::format("{:.1f}", static_cast<double>(sum.count) / kProfiled),
                    name.substr(0, kLongestName)});
  }
  fmt::print("{}", format_table({"ms/step", "of busy", "calls", "kernel"}, rows));
  fmt::print("{:.3f} ms/step in {} other kernels\n", rest / 1e3 / kProfiled,
             order.size() - std::min(order.size(), kRows));
  fmt::print("busy {:.2f} ms/step, idle {:.2f} ms/step while profiled; unprofiled step {:.2f} ms\n",
             kernels.busy_us / 1e3 / kProfiled,
             (kernels.span_us - kernels.busy_us) / 1e3 / kProfiled, step_s * 1e3);
}

int run(const std::string& name, std::int64_t seq_len, std::int64_t rows, std::string trace) {
  const Result<ModelSpec> model = load_model(name);
  if (!model) {
    fmt::print(stderr, "step_profile: {}\n", model.error().message);
    return 2;
  }
  TrainerOptions options;
  options.model = *model;
  options.seq_len = seq_len;
  options.global_batch = options.plan.micro_batch = rows;
  options.compute = Compute::kBf16;
  options.device = {.cuda = true, .index = 0};
  const bool keep = !trace.empty();
  if (!keep) trace = fmt::format("/tmp/step_profile.{}.json", ::getpid());
  double step_s = 0;
  run_ranks(1, [&](int, GroupCache& groups) {
    const Result<RankDevice> device = choose_device(DeviceKind::kCuda, 0, 1);
    const Result<Dataset> data =
        Dataset::open({"builtin"}, {.seq_len = seq_len, .vocab = model->vocab});
    const Result<std::unique_ptr<Trainer>> trainer = Trainer::create(groups, options);
    if (!device || !data || !trainer) throw std::runtime_error("cannot start");
    std::int64_t consumed = 0;
    const auto step = [&] {
      const Result<StepResult> done = (*trainer)->step(*data, consumed);
      if (!done) throw std::runtime_error(done.error().message);
      consumed += rows;
      return done->total.v;
    };
    for (int i = 0; i < kWarmUp; ++i) step();
    std::vector<double> times;
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kTimed; ++i) step();
    step_s = seconds_since(begin).v / kTimed;

    using namespace torch::profiler::impl;
    const ProfilerConfig config(ProfilerState::KINETO);
    const std::set<ActivityType> activities{ActivityType::CPU, ActivityType::CUDA};
    torch::autograd::profiler::prepareProfiler(config, activities);
    torch::autograd::profiler::enableProfiler(config, activities, {at::RecordScope::FUNCTION});
    for (int i = 0; i < kProfiled; ++i) step();
    torch::autograd::profiler::disableProfiler()->save(trace);
  });
  fmt::print("{}: {} parameters, {} x {} tokens, {:.1f} k tokens/s\n", name,
             human_count(static_cast<double>(model->total_params())), rows, seq_len,
             static_cast<double>(rows * seq_len) / step_s / 1e3);
  print(read_kernels(trace), step_s);
  if (!keep) std::remove(trace.c_str());
  return 0;
}

}  // namespace
}  // namespace copus

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) {
    fmt::print(stderr, "usage: step_profile MODEL SEQ_LEN ROWS [TRACE.json]\n");
    return 2;
  }
  return copus::run(argv[1], std::stoll(argv[2]), std::stoll(argv[3]), argc == 5 ? argv[4] : "");
}
