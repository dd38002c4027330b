#include "copus/tuner/traffic_svg.h"

#include <gtest/gtest.h>

#include "copus/tuner/traffic_testing.h"

namespace copus {
namespace {

std::string draw(const TestJob& job, const std::string& title = "title") {
  const Traffic traffic = job.traffic();
  const LinkLoads links = link_loads(traffic, job.cluster);
  const TrafficPattern pattern = traffic_pattern(*job.step, job.plan, 0, 0);
  return traffic_svg({title, "subtitle", traffic, links, pattern});
}

// Every element that opens also closes, in order.
bool tags_balance(const std::string& svg) {
  std::vector<std::string> open;
  for (std::size_t at = svg.find('<'); at != std::string::npos; at = svg.find('<', at + 1)) {
    const std::size_t end = svg.find('>', at);
    if (end == std::string::npos) return false;
    const std::string tag = svg.substr(at + 1, end - at - 1);
    if (tag.back() == '/') continue;
    if (tag[0] != '/') {
      open.push_back(tag.substr(0, tag.find(' ')));
    } else if (open.empty() || open.back() != tag.substr(1)) {
      return false;
    } else {
      open.pop_back();
    }
  }
  return open.empty();
}

TEST(TrafficSvg, IsWellFormedAtEverySize) {
  for (const auto& [cluster, plan] :
       {std::pair{"1x1xH100-80GB-SXM", "dp=1"}, std::pair{"1x8xH100-80GB-SXM", "tp=2,pp=2,dp=2"},
        std::pair{"64x8xH100-80GB-SXM", "tp=4,pp=4,dp=32"},
        std::pair{"128x8xH100-80GB-SXM", "tp=8,pp=4,dp=32"},
        std::pair{"1024x8xH100-80GB-SXM", "tp=8,pp=4,dp=256"}}) {
    const TestJob job("llama-3-8b", cluster, 4096, 1024, plan);
    const std::string svg = draw(job);
    EXPECT_TRUE(tags_balance(svg)) << cluster;
    EXPECT_EQ(svg.find("nan"), std::string::npos) << cluster;
    EXPECT_EQ(svg.find("inf"), std::string::npos) << cluster;
    EXPECT_LT(svg.size(), 1'500'000U) << cluster;
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
  EXPECT_TRUE(tags_balance(svg));
}

TEST(TrafficSvg, ShowsOnlyTheDimensionsThatSend) {
  const TestJob job("llama-3-8b", "1x8xH100-80GB-SXM", 4096, 64, "dp=8");
  const std::string svg = draw(job);
  EXPECT_NE(svg.find(">dp<"), std::string::npos);
  EXPECT_EQ(svg.find(">tp<"), std::string::npos);
}

}  // namespace
}  // namespace copus
