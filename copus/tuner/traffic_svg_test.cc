#include "copus/tuner/traffic_svg.h"

#include <gtest/gtest.h>

#include "copus/base/svg_testing.h"
#include "copus/tuner/traffic_testing.h"

namespace copus {
namespace {

std::string draw(const TestJob& job, const std::string& title = "title") {
  const Traffic traffic = job.traffic();
  const LinkLoads links = link_loads(traffic, job.cluster);
  const TrafficPattern pattern = traffic_pattern(*job.step, job.plan, 0, 0);
  return traffic_svg({title, "subtitle", traffic, links, pattern});
}

TEST(TrafficSvg, IsWellFormedAtEverySize) {
  for (const auto& [cluster, plan] :
       {std::pair{"1x1xH100-80GB-SXM", "dp=1"}, std::pair{"1x8xH100-80GB-SXM", "tp=2,pp=2,dp=2"},
        std::pair{"64x8xH100-80GB-SXM", "tp=4,pp=4,dp=32"},
        std::pair{"128x8xH100-80GB-SXM", "tp=8,pp=4,dp=32"},
        std::pair{"1024x8xH100-80GB-SXM", "tp=8,pp=4,dp=256"}}) {
    const TestJob job("llama-3-8b", cluster, 4096, 1024, plan);
    const std::string svg = draw(job);
    SCOPED_TRACE(cluster);
    expect_valid_svg(svg);
    EXPECT_LT(svg.size(), 1'500'000U);
  }
}

TEST(TrafficSvg, SaysWhatACellIs) {
  const TestJob gpus("llama-3-8b", "64x8xH100-80GB-SXM", 4096, 1024, "tp=4,pp=4,dp=32");
  EXPECT_NE(draw(gpus).find("to GPU<"), std::string::npos);
  const TestJob nodes("llama-3-8b", "128x8xH100-80GB-SXM", 4096, 1024, "tp=8,pp=4,dp=32");
  EXPECT_NE(draw(nodes).find("to node<"), std::string::npos);
  const TestJob groups("llama-3-8b", "1024x8xH100-80GB-SXM", 4096, 1024, "tp=8,pp=4,dp=256");
  EXPECT_NE(draw(groups).find("to group of 2 nodes<"), std::string::npos);
}

TEST(TrafficSvg, EscapesText) {
  const TestJob job("llama-3-8b", "1x8xH100-80GB-SXM", 4096, 64, "dp=8");
  const std::string svg = draw(job,
                               "a<b>&\x01"
                               "c");
  EXPECT_NE(svg.find("a&lt;b&gt;&amp; c"), std::string::npos);
  expect_valid_svg(svg);
}

TEST(TrafficSvg, ShowsOnlyTheDimensionsThatSend) {
  const TestJob job("llama-3-8b", "1x8xH100-80GB-SXM", 4096, 64, "dp=8");
  const std::string svg = draw(job);
  EXPECT_NE(svg.find(">dp<"), std::string::npos);
  EXPECT_EQ(svg.find(">tp<"), std::string::npos);
}

}  // namespace
}  // namespace copus
