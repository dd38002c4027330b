// Measures how fast predictions and searches are: GPT-3 175B on 4,096 and 16,384 H100s, one core.
//
// Prints Google Benchmark's table and then one plain line per figure. The reference in the same run
// is predict(), which plays the pipeline's timeline.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "copus/base/count_allocations.h"
#include "copus/base/seconds_since.h"
#include "copus/spec/catalog.h"
#include "copus/spec/hf_config.h"
#include "copus/tuner/search.h"

namespace copus {
namespace {

using Int = std::int64_t;
constexpr Int kSeqLen = 2048;
constexpr const char* kModel = "gpt3-175b";

// A job whose batch is one sequence per GPU.
struct Job {
  explicit Job(Int nodes)
      : model(load_model(kModel).value()),
        cluster(load_cluster(fmt::format("{}x8xH100-80GB-SXM", nodes)).value()),
        step(model, cluster, kSeqLen, cluster.gpus(), CostOptions()) {}

  ModelSpec model;
  ClusterSpec cluster;
  StepModel step;
};

// A plan as in the search: plans of one shape share their costs, and the split is four numbers.
struct Prepared {
  ParallelPlan plan;
  StageSplit split;
  std::size_t costs = 0;
};
struct PreparedSpace {
  std::vector<ShapeCosts> costs;
  std::vector<Prepared> plans;
};

// Every valid plan with equal stages.
PreparedSpace prepare(const Job& job) {
  PreparedSpace space;
  const Int gpus = job.cluster.gpus(), batch = job.step.global_batch();
  ParallelPlan p;
  auto add_pipelines = [&] {
    for (p.pp = 1; p.pp <= job.model.layers; ++p.pp) {
      if (gpus % (p.tp * p.cp * p.pp) != 0) continue;
      p.dp = gpus / (p.tp * p.cp * p.pp);
      for (p.vp = 1; p.vp * p.pp <= job.model.layers; ++p.vp) {
        p.schedule = p.vp > 1 ? ScheduleKind::kInterleaved : ScheduleKind::k1F1B;
        for (p.zero = 0; p.zero <= 3; ++p.zero) {
          if (!p.validate(job.model, job.cluster, kSeqLen, batch)) continue;
          space.plans.push_back(
              {p, equal_split(job.model.layers, p.pp * p.vp), space.costs.size() - 1});
        }
      }
    }
  };
  for (p.tp = 1; p.tp <= 32; p.tp *= 2) {
    for (p.cp = 1; p.cp <= 64; p.cp *= 2) {
      for (p.micro_batch = 1; p.micro_batch <= 64; p.micro_batch *= 2) {
        for (const Recompute r : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
          p.recompute = r;
          for (const bool sp : {false, true}) {
            if (sp && p.tp == 1) continue;
            p.sp = sp;
            space.costs.push_back(job.step.shape_costs(p));
            add_pipelines();
          }
        }
      }
    }
  }
  return space;
}

// The figures of the plain lines at the end; zero: not measured, because filtered out.
struct Summary {
  double closed_form_per_s = 0;
  double allocations_each = 0;
  double timeline_per_s = 0;
  struct Space {
    Seconds time;
    Int plans = 0;
  };
  Space small, large;
} summary;

void closed_form(benchmark::State& state) {
  const Job job(512);
  const PreparedSpace space = prepare(job);
  Int predictions = 0;
  const std::size_t allocated = allocations;
  const auto start = std::chrono::steady_clock::now();
  while (state.KeepRunning()) {
    double sum = 0;
    for (const Prepared& p : space.plans) {
      sum += job.step.closed_form(p.plan, space.costs[p.costs], p.split).time.v;
    }
    benchmark::DoNotOptimize(sum);
    predictions += static_cast<Int>(space.plans.size());
  }
  const auto n = static_cast<double>(predictions);
  summary.closed_form_per_s = n / seconds_since(start).v;
  summary.allocations_each = static_cast<double>(allocations - allocated) / n;
  state.SetItemsProcessed(predictions);
  state.counters["plans"] = static_cast<double>(space.plans.size());
  state.counters["allocations_each"] = summary.allocations_each;
}
BENCHMARK(closed_form)->Unit(benchmark::kMillisecond);

void timeline(benchmark::State& state) {
  const Job job(512);
  const PreparedSpace space = prepare(job);
  constexpr std::size_t kSample = 200;  // plans, evenly from the same space
  Int predictions = 0;
  const auto start = std::chrono::steady_clock::now();
  while (state.KeepRunning()) {
    double sum = 0;
    for (std::size_t i = 0; i < kSample; ++i) {
      sum += job.step.predict(space.plans[i * space.plans.size() / kSample].plan).time.v;
    }
    benchmark::DoNotOptimize(sum);
    predictions += static_cast<Int>(kSample);
  }
  summary.timeline_per_s = static_cast<double>(predictions) / seconds_since(start).v;
  state.SetItemsProcessed(predictions);
}
BENCHMARK(timeline)->Unit(benchmark::kMillisecond);

void whole_space(benchmark::State& state) {
  const Job job(state.range(0) / 8);
  Summary::Space& space = state.range(0) == 4096 ? summary.small : summary.large;
  Int runs = 0;
  const auto start = std::chrono::steady_clock::now();
  while (state.KeepRunning()) {
    const SearchResult found = search(job.step, {});
    space.plans = found.searched;
    ++runs;
  }
  space.time = seconds_since(start) / static_cast<double>(runs);
  state.SetItemsProcessed(runs * space.plans);
  state.counters["plans"] = static_cast<double>(space.plans);
}
BENCHMARK(whole_space)->Arg(4096)->Arg(16384)->Unit(benchmark::kMillisecond);

void print_summary() {
  fmt::print("\n");
  if (summary.closed_form_per_s > 0) {
    fmt::print("closed form: {:.0f} predictions/s on one core, {} allocations each\n",
               summary.closed_form_per_s, summary.allocations_each);
  }
  if (summary.timeline_per_s > 0) {
    fmt::print("timeline: {:.0f} predictions/s on one core\n", summary.timeline_per_s);
  }
  if (summary.closed_form_per_s > 0 && summary.timeline_per_s > 0) {
    fmt::print("ratio: closed form {:.0f}x the timeline\n",
               summary.closed_form_per_s / summary.timeline_per_s);
  }
  auto print_space = [](Int gpus, const Summary::Space& space) {
    if (space.plans == 0) return;
    fmt::print("whole space: {} on {} GPUs, {} plans in {:.3f} s on one core\n", kModel, gpus,
               space.plans, space.time.v);
  };
  print_space(4096, summary.small);
  print_space(16384, summary.large);
}

}  // namespace
}  // namespace copus

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  copus::print_summary();
  // An allocation in the inner loop is a defect, even if it is fast.
  return copus::summary.allocations_each > 0 ? 1 : 0;
}
