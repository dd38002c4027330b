#include "copus/tuner/traffic_pattern.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "copus/tuner/traffic_testing.h"

namespace copus {
namespace {

struct Case {
  const char* model;
  const char* plan;
  const char* assumed = "";
};

// Layouts that together use every dimension, schedule, ZeRO stage and recompute mode.
constexpr Case kCases[] = {
    {"llama-3-8b", "tp=2,pp=4,dp=4,zero=0"},
    {"llama-3-8b", "tp=4,pp=2,dp=4,zero=1,sp=1,recompute=full"},
    {"llama-3-8b", "tp=2,cp=4,pp=1,dp=4,zero=2,recompute=selective"},
    {"llama-3-8b", "tp=2,pp=2,dp=8,vp=4,schedule=interleaved,zero=1"},
    {"llama-3-8b", "tp=1,pp=4,dp=8,schedule=zero_bubble,zero=1"},
    {"llama-3-8b", "tp=2,pp=1,dp=16,zero=3"},
    {"llama-3.2-3b", "tp=2,pp=4,dp=4,schedule=gpipe"},
    {"mixtral-8x7b", "tp=2,pp=2,dp=8,ep=8,sp=1"},
    {"mixtral-8x7b", "tp=1,pp=4,dp=4,cp=2,ep=4,zero=1,recompute=full"},
    {"llama-3.2-3b", "tp=2,pp=4,dp=4,zero=1,sp=1", "stage_cut=work"},
    {"llama-3-8b", "tp=1,pp=4,dp=8", "pp_overlap=1"},
};
constexpr double kSkew = 0.5;

TestJob job_of(const Case& c) {
  return {c.model, "4x8xH100-80GB-SXM",
          4096,    64,
          c.plan,  apply_assumptions(CostOptions(), c.assumed).value()};
}

TEST(TrafficPattern, SendsExactlyWhatTheMatrixSays) {
  for (const Case& c : kCases) {
    const TestJob job = job_of(c);
    const Traffic traffic = job.traffic(kSkew);
    for (const std::int64_t gpu : {0, 5, 31}) {
      const TrafficPattern pattern = traffic_pattern(*job.step, job.plan, kSkew, gpu);
      DimensionBytes sums{};
      for (const Burst& b : pattern.bursts) of(sums, b.dimension) += b.bytes;
      for (const Dimension d : kAllDimensions) {
        const double expected = sent(traffic, gpu, d);
        EXPECT_NEAR(of(sums, d).v, expected, 1e-9 * expected) << c.plan << " " << to_string(d);
      }
    }
  }
}

TEST(TrafficPattern, BurstsAreInOrderAndInsideTheStep) {
  for (const Case& c : kCases) {
    const TestJob job = job_of(c);
    const TrafficPattern pattern = traffic_pattern(*job.step, job.plan, kSkew, 0);
    Seconds previous(0);
    for (const Burst& b : pattern.bursts) {
      EXPECT_GE(b.start, previous) << c.plan;
      EXPECT_GE(b.end, b.start) << c.plan;
      EXPECT_LE(b.end, pattern.span) << c.plan;
      previous = b.start;
    }
    for (const Dimension d : kAllDimensions) {
      EXPECT_LE(pattern.on_time(d).v, pattern.span.v * (1 + 1e-9)) << c.plan;
    }
  }
}

TEST(TrafficPattern, TensorParallelBurstsComeTwicePerLayerAndPassWhileItComputes) {
  const TestJob job("llama-3-8b", "4x8xH100-80GB-SXM", 4096, 64, "tp=4,pp=4,dp=2");
  const TrafficPattern pattern = traffic_pattern(*job.step, job.plan, 0, 0);
  double count = 0;
  for (const Burst& b : pattern.bursts) {
    if (b.dimension != Dimension::kTp) continue;
    ++count;
    EXPECT_TRUE(std::any_of(pattern.actions.begin(), pattern.actions.end(), [&](const auto& a) {
      return a.start.v <= b.start.v + 1e-9 && b.end.v <= a.end.v + 1e-9;
    }));
  }
  const double layers = 32.0 / 4;
  EXPECT_EQ(count, 2 * 2 * layers * job.micro_batches());
}

TEST(TrafficPattern, GradientsFollowTheLastBackwardUnlessTheEngineOverlapsThem) {
  const TestJob after("llama-3-8b", "4x8xH100-80GB-SXM", 4096, 64, "tp=4,pp=4,dp=2,zero=0");
  const TestJob under("llama-3-8b", "4x8xH100-80GB-SXM", 4096, 64, "tp=4,pp=4,dp=2,zero=1");
  // Take the last dp burst, because under ZeRO-1 the first one gathers weights.
  auto last_reduction = [](const TrafficPattern& pattern) {
    return std::find_if(pattern.bursts.rbegin(), pattern.bursts.rend(),
                        [](const Burst& b) { return b.dimension == Dimension::kDp; })
        ->start;
  };
  const TrafficPattern apart = traffic_pattern(*after.step, after.plan, 0, 0);
  EXPECT_GE(last_reduction(apart), apart.actions.back().end);
  const TrafficPattern beside = traffic_pattern(*under.step, under.plan, 0, 0);
  EXPECT_EQ(last_reduction(beside).v, beside.actions.back().start.v);
}

TEST(TrafficPattern, OverlappingBurstsCountOnce) {
  TrafficPattern pattern;
  pattern.bursts = {{Seconds(0), Seconds(2), Dimension::kTp, Bytes(1)},
                    {Seconds(1), Seconds(3), Dimension::kTp, Bytes(1)},
                    {Seconds(1), Seconds(9), Dimension::kDp, Bytes(1)},
                    {Seconds(5), Seconds(6), Dimension::kTp, Bytes(1)}};
  EXPECT_DOUBLE_EQ(pattern.on_time(Dimension::kTp).v, 4);
}

TEST(TrafficPattern, AHugeBatchIsPlayedInPart) {
  const TestJob job("llama-3-8b", "4x8xH100-80GB-SXM", 4096, 4'000'000, "tp=4,pp=4,dp=2");
  const TrafficPattern pattern = traffic_pattern(*job.step, job.plan, 0, 0);
  EXPECT_LT(pattern.micro_batches, job.plan.micro_batches(4'000'000));
  EXPECT_LT(pattern.bursts.size(), 3'000'000U);
}

TEST(TrafficPattern, HiddenMessagesAreOnTheLinksAsLongAsOthers) {
  const auto message = [](const char* assumed) {
    const TestJob job = job_of({"llama-3-8b", "pp=4,dp=8", assumed});
    const TrafficPattern pattern = traffic_pattern(*job.step, job.plan, 0, 0);
    const auto burst = std::find_if(pattern.bursts.begin(), pattern.bursts.end(),
                                    [](const Burst& b) { return b.dimension == Dimension::kPp; });
    return burst == pattern.bursts.end() ? Seconds(0) : burst->end - burst->start;
  };
  EXPECT_GT(message("").v, 0);
  EXPECT_NEAR(message("pp_overlap=1") / message(""), 1, 1e-9);
}

}  // namespace
}  // namespace copus
