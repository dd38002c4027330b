#include "copus/spec/cluster_spec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>

#include "copus/base/text_testing.h"
#include "copus/spec/catalog.h"

namespace copus {
namespace {

// Returns all fields of a cluster, so that the tests notice a field that the JSON leaves out. The
// structured bindings stop compiling when somebody adds a field.
auto values(const ClusterSpec& cluster) {
  const auto& [name, nodes, per_node, gpu, network, framework] = cluster;
  const auto& [gpu_name, bf16, fp16, fp8, mxfp8, nvfp4, fp32, memory, bandwidth, fused, usual,
               topology, link, link_efficiency, link_latency, link_base, reduction, usual_network,
               efficiency] = gpu;
  const auto& [matmul, half_m, half_n, half_k, forward, backward, elementwise, launch] = efficiency;
  std::vector<double> numbers = {
      bf16.v,      fp16.v, fp8.v,           mxfp8.v,        nvfp4.v,     fp32.v,      memory.v,
      bandwidth.v, link.v, link_efficiency, link_latency.v, link_base.v, reduction,   matmul,
      half_m,      half_n, half_k,          forward,        backward,    elementwise, launch.v};
  for (const NetworkSpec* each : {&network, &usual_network}) {
    const auto& [node_bandwidth, net_efficiency, latency, base, penalty, congestion] = *each;
    numbers.insert(numbers.end(),
                   {node_bandwidth.v, net_efficiency, latency.v, base.v, penalty, congestion});
  }
  return std::tuple(name, nodes, per_node, gpu_name, fused, usual, topology, framework, numbers);
}

Result<ClusterSpec> parsed_cluster(std::string_view text) {
  COPUS_TRY(const Json json, parse_json(text, "c.json"));
  return cluster_from_json(json, "c.json");
}

std::string cluster_error_of(std::string_view text) {
  const auto cluster = parsed_cluster(text);
  return cluster ? "parsed" : cluster.error().message;
}

std::string load_error(std::string_view text) {
  const auto cluster = load_cluster(text);
  return cluster ? "loaded" : cluster.error().message;
}

// Gives each test its own catalog folder. Removes the folder and resets the catalog afterwards.
class CatalogDir : public ::testing::Test {
 protected:
  CatalogDir() {
    dir_ = std::filesystem::path(::testing::TempDir()) /
           fmt::format("copus-catalog-{}", std::random_device()());
    std::filesystem::create_directories(dir_ / "models");
    std::filesystem::create_directories(dir_ / "clusters");
    set_catalog_dir(dir_.string());
  }
  ~CatalogDir() override {
    set_catalog_dir("");
    std::error_code ignored;
    std::filesystem::remove_all(dir_, ignored);
  }
  void write(const std::string& path, std::string_view text) const {
    std::ofstream(dir_ / path) << text;
  }
  std::filesystem::path dir_;
};

TEST(Precision, ParsesWhatItPrints) {
  for (const Precision p :
       {Precision::kBf16, Precision::kFp16, Precision::kFp8, Precision::kFp32}) {
    EXPECT_EQ(parse_precision(to_string(p)).value(), p);
  }
  EXPECT_EQ(parse_precision("int8").error().message,
            "precision: got \"int8\"; want bf16, fp16, fp8, fp8_current, mxfp8, nvfp4 or fp32");
}

TEST(Precision, OneWithoutUnitsIsRefusedWithThoseThatExist) {
  const GpuSpec v100 = catalog_gpu("V100-16GB-SXM").value();
  EXPECT_EQ(v100.peak(Precision::kBf16).v, 0);
  EXPECT_EQ(check_precision(v100, Precision::kBf16).error().message,
            "precision: got bf16, which V100-16GB-SXM has no units for; want fp16 or fp32");
  EXPECT_TRUE(check_precision(v100, Precision::kFp16));
  GpuSpec fp8_alone = catalog_gpu("H100-80GB-SXM").value();
  EXPECT_TRUE(check_precision(fp8_alone, Precision::kFp8));
  fp8_alone.peak_bf16 = FlopsPerSec(0);
  EXPECT_EQ(check_precision(fp8_alone, Precision::kFp8).error().message,
            "precision: got fp8 on H100-80GB-SXM, whose peak_tflops has no bf16; want a bf16 rate "
            "too, because attention and the vocabulary's products run in bf16");
}

TEST(Catalog, ADgx2HasSixteenGpusBehindItsCards) {
  EXPECT_EQ(load_cluster("2x16xV100-32GB-SXM3")->network.node_bandwidth.v, gigabits_per_s(800).v);
}

TEST(Catalog, EveryGpuMakesAClusterThatPrintsAndParsesBackTheSame) {
  const std::vector<std::string> names = catalog_gpu_names();
  EXPECT_GE(names.size(), 14U);
  for (const std::string& name : names) {
    const auto cluster = load_cluster("4x8x" + name);
    ASSERT_TRUE(cluster) << cluster.error().message;
    const auto again = parsed_cluster(cluster_to_json(*cluster).dump());
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(values(*again), values(*cluster)) << name;
  }
}

TEST(Catalog, EveryClusterLoadsUnderItsOwnName) {
  const std::vector<std::string> names = catalog_cluster_names();
  EXPECT_GE(names.size(), 5U);
  for (const std::string& name : names) {
    const auto cluster = load_cluster(name);
    ASSERT_TRUE(cluster) << cluster.error().message;
    EXPECT_EQ(cluster->name, name);
  }
}

TEST(Catalog, FiguresAreTheDataSheets) {
  const GpuSpec h100 = catalog_gpu("H100-80GB-SXM").value();
  EXPECT_DOUBLE_EQ(h100.peak(Precision::kBf16).v, 989.4e12);
  EXPECT_DOUBLE_EQ(h100.peak(Precision::kFp8).v, 1978.9e12);
  EXPECT_DOUBLE_EQ(h100.memory_bandwidth.v, 3.35e12);
  EXPECT_DOUBLE_EQ(h100.link_bandwidth.v, 450e9);
  EXPECT_DOUBLE_EQ(to_gib(h100.memory), 79.1);
  EXPECT_EQ(catalog_gpu("GB200")->gpus_per_node, 72);
}

TEST(Catalog, OnlyVoltaLacksFusedAttention) {
  for (const std::string& name : catalog_gpu_names()) {
    EXPECT_EQ(catalog_gpu(name)->fused_attention, !name.starts_with("V100")) << name;
  }
}

TEST(Catalog, NamesIgnoreCaseAndKeepTheCatalogsSpelling) {
  EXPECT_EQ(catalog_gpu("h100-80gb-sxm")->name, "H100-80GB-SXM");
  EXPECT_EQ(load_cluster("1X8xmi250x")->gpu.name, "MI250X");
}

TEST(Catalog, AnUnknownModelIsRefusedWithNearNames) {
  const auto text = catalog_model_text("llama-3-8");
  ASSERT_FALSE(text);
  EXPECT_TRUE(contains(text.error().message, "llama-3-8b")) << text.error().message;
  EXPECT_FALSE(catalog_model_text("../gpus"));
}

TEST(LoadCluster, ShapeGivesNodesGpusAndTheUsualNetwork) {
  const ClusterSpec cluster = load_cluster("4x8xH100-80GB-SXM").value();
  EXPECT_EQ(cluster.name, "4x8xH100-80GB-SXM");
  EXPECT_EQ(cluster.nodes, 4);
  EXPECT_EQ(cluster.gpus(), 32);
  EXPECT_DOUBLE_EQ(cluster.network.node_bandwidth.v, 400e9);
}

TEST(LoadCluster, BadShapesAreOneLineErrorsThatShowTheRightForm) {
  struct Case {
    std::string text, part;
  };
  const Case cases[] = {
      {"8xH100-80GB-SXM", "want NODESxGPUSxGPU, as 4x8xH100-80GB-SXM"},
      {"8x", "want NODESxGPUSxGPU"},
      {"4xx8xB200", "want NODESxGPUSxGPU"},
      {"0x8xB200", "nodes: got \"0\"; want an integer from 1"},
      {"4x0xB200", "GPUs per node: got \"0\""},
      {"-4x8xB200", "nodes: got \"-4\""},
      {"1.5x8xB200", "nodes: got \"1.5\""},
      {"125000000x8xB200", "nodes: got \"125000000\"; want an integer from 1 to 1000000"},
      {"500000x8xB200", "500000x8 = 4000000 GPUs; want at most 1000000"},
      {"9000000000000000000x9000000000000000000xB200", "from 1 to 1000000"},
      {"99999999999999999999x8xB200", "nodes: got"},
      {"4x8x", "gpu: got \"\"; want"},
      {"4x8xH100-80GB-SMX", "H100-80GB-SXM"},
      {"4x8xH100\n", "gpu: got \"H100\\n\"; want"},
      {"nanx8xB200", "a cluster file, or NODESxGPUSxGPU"},
      {"", "a cluster file, or NODESxGPUSxGPU"},
      {"no-such-file.json", "no-such-file.json: no such file"},
      {"dgx-h100", "dgx-h100-64"},
  };
  for (const Case& c : cases) {
    const std::string error = load_error(c.text);
    EXPECT_TRUE(contains(error, c.part)) << c.text << " -> " << error;
    EXPECT_FALSE(contains(error, "\n")) << error;
  }
}

TEST(ClusterJson, OverridesReplaceTheGpusEntryAndNothingElse) {
  const ClusterSpec plain = parsed_cluster(R"({"nodes": 2, "gpu": "A100-80GB-SXM"})").value();
  const ClusterSpec changed = parsed_cluster(R"({
    "name": "mine", "nodes": 2, "gpus_per_node": 4, "gpu": "A100-80GB-SXM", "node_network_gbps": 200,
    "memory_gib": 40, "memory_bandwidth_gbs": 1000, "peak_tflops": {"bf16": 100},
    "link_bandwidth_gbs": 25, "link_topology": "ring", "link_efficiency": 0.5, "link_latency_us": 9,
    "link_base_latency_us": 8, "in_network_reduction": 1.5, "network_efficiency": 0.25,
    "network_latency_us": 7, "network_base_latency_us": 6, "network_scale_penalty": 0.125,
    "fused_attention": false, "efficiency": {"matmul": 0.75, "launch_us": 2}})")
                                  .value();
  EXPECT_EQ(plain.gpus_per_node, 8);
  EXPECT_EQ(plain.name, "2x8xA100-80GB-SXM");
  EXPECT_EQ(changed.name, "mine");
  EXPECT_EQ(changed.gpus(), 8);
  EXPECT_DOUBLE_EQ(changed.network.node_bandwidth.v, 25e9);
  EXPECT_DOUBLE_EQ(to_gib(changed.gpu.memory), 40);
  EXPECT_DOUBLE_EQ(changed.gpu.memory_bandwidth.v, 1e12);
  EXPECT_DOUBLE_EQ(changed.gpu.peak_bf16.v, 100e12);
  EXPECT_EQ(changed.gpu.peak_fp16, plain.gpu.peak_fp16);
  EXPECT_EQ(changed.gpu.link_topology, LinkTopology::kRing);
  EXPECT_DOUBLE_EQ(changed.gpu.link_bandwidth.v, 25e9);
  EXPECT_DOUBLE_EQ(changed.gpu.link_efficiency, 0.5);
  EXPECT_DOUBLE_EQ(changed.gpu.link_latency.v, 9e-6);
  EXPECT_DOUBLE_EQ(changed.gpu.link_base_latency.v, 8e-6);
  EXPECT_DOUBLE_EQ(changed.gpu.in_network_reduction, 1.5);
  EXPECT_DOUBLE_EQ(changed.network.efficiency, 0.25);
  EXPECT_DOUBLE_EQ(changed.network.latency.v, 7e-6);
  EXPECT_DOUBLE_EQ(changed.network.base_latency.v, 6e-6);
  EXPECT_DOUBLE_EQ(changed.network.scale_penalty, 0.125);
  EXPECT_FALSE(changed.gpu.fused_attention);
  EXPECT_DOUBLE_EQ(changed.gpu.efficiency.matmul, 0.75);
  EXPECT_DOUBLE_EQ(changed.gpu.efficiency.launch.v, 2e-6);
  EXPECT_DOUBLE_EQ(changed.gpu.efficiency.memory, plain.gpu.efficiency.memory);
}

TEST(ClusterJson, WhatItPrintsParsesBackTheSameForRandomFigures) {
  std::mt19937_64 random(1);
  const auto share = [&] { return std::uniform_real_distribution<double>(0.01, 1)(random); };
  for (int i = 0; i < 300; ++i) {
    const Json json = {{"nodes", 3},
                       {"gpu", "B200"},
                       {"node_network_gbps", 4000 * share()},
                       {"memory_gib", 200 * share()},
                       {"memory_bandwidth_gbs", 8000 * share()},
                       {"peak_tflops", {{"bf16", 3000 * share()}, {"fp8", 5000 * share()}}},
                       {"link_bandwidth_gbs", 900 * share()},
                       {"link_latency_us", 10 * share()},
                       {"network_latency_us", 10 * share()},
                       {"efficiency", {{"matmul", share()}, {"launch_us", 10 * share()}}}};
    const ClusterSpec cluster = parsed_cluster(json.dump()).value();
    const Json printed = cluster_to_json(cluster);
    EXPECT_EQ(values(parsed_cluster(printed.dump()).value()), values(cluster)) << printed;
  }
}

TEST(ClusterJson, PrintsFiguresAsTheyWereWritten) {
  const std::string printed = cluster_to_json(load_cluster("1x8xH100-80GB-SXM").value()).dump();
  EXPECT_TRUE(contains(printed, "\"bf16\":989.4,")) << printed;
  EXPECT_TRUE(contains(printed, "\"memory_gib\":79.1,")) << printed;
}

TEST(ClusterJson, AnInlineGpuNeedsNoCatalog) {
  const auto cluster = parsed_cluster(R"({"nodes": 1, "gpus_per_node": 2, "gpu": {"name": "Toy",
      "peak_tflops": {"fp32": 1}, "memory_gib": 4, "memory_bandwidth_gbs": 100, "link_bandwidth_gbs": 8,
      "link_topology": "pcie"}})");
  ASSERT_TRUE(cluster) << cluster.error().message;
  EXPECT_EQ(cluster->name, "1x2xToy");
  EXPECT_EQ(cluster->gpu.link_topology, LinkTopology::kPcie);
}

TEST(ClusterJson, ErrorsNameTheFileTheFieldAndWhatWouldBeRight) {
  struct Case {
    std::string text, part;
  };
  const Case cases[] = {
      {R"([])", "c.json: got"},
      {R"({"gpu": "B200"})", "c.json: nodes: missing"},
      {R"({"nodes": 1})", "c.json: gpu: missing; want a catalog name"},
      {R"({"nodes": 1, "gpu": 5})", "c.json: gpu: got a number"},
      {R"({"nodes": 1, "gpu": "B20"})", "c.json: gpu: got \"B20\"; want B200"},
      {R"({"nodes": 1, "gpu": {}})", "c.json: gpu: memory_gib: missing"},
      {R"({"nodes": 1, "gpu": {"memory_gib": 4, "memory_bandwidth_gbs": 1, "link_bandwidth_gbs": 8}})",
       "c.json: gpu: peak_tflops: missing"},
      {R"({"nodes": 1, "gpu": {"memory_gib": 4, "memory_bandwidth_gbs": 1, "link_bandwidth_gbs": 8,
           "peak_tflops": {}}})",
       "peak_tflops: got 0 for every precision"},
      {R"({"nodes": 2, "gpu": {"memory_gib": 4, "memory_bandwidth_gbs": 1, "link_bandwidth_gbs": 8,
           "peak_tflops": {"bf16": 1}}})",
       "node_network_gbps: got 0; want the rate between the 2 nodes"},
      {R"({"nodes": 0, "gpu": "B200"})", "nodes: got 0"},
      {R"({"nodes": 1000000, "gpu": "B200"})", "8000000 GPUs; want at most 1000000"},
      {R"({"nodes": 1, "gpu": "B200", "memory_gb": 3})",
       "memory_gb: unknown field; want memory_gib"},
      {R"({"nodes": 1, "gpu": "B200", "memory_gib": -3})", "memory_gib: got -3"},
      {R"({"nodes": 1, "gpu": "B200", "link_efficiency": 1.5})", "link_efficiency: got 1.5"},
      {R"({"nodes": 1, "gpu": "B200", "link_topology": "star"})",
       "link_topology: got \"star\"; want switch, cube_mesh, mesh, ring or pcie"},
      {R"({"nodes": 1, "gpu": "B200", "efficiency": {"matmull": 1}})",
       "c.json: efficiency: matmull: unknown field; want matmul"},
      {R"({"nodes": 1, "gpu": "B200", "peak_tflops": 5})", "c.json: peak_tflops: got"},
      {R"({"nodes": 1, "gpu": "B200", "name": "a\nb"})", "name: got \"a\\nb\"; want 1 to 200"},
  };
  for (const Case& c : cases) {
    const std::string error = cluster_error_of(c.text);
    EXPECT_TRUE(contains(error, c.part)) << c.text << " -> " << error;
    EXPECT_FALSE(contains(error, "\n")) << error;
  }
}

TEST(ClusterSpec, ValidateRefusesFiguresThatNoParserLetsThrough) {
  const ClusterSpec good = load_cluster("2x8xB200").value();
  EXPECT_TRUE(good.validate());
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), -1.0, std::numeric_limits<double>::infinity()}) {
    ClusterSpec cluster = good;
    cluster.gpu.memory.v = bad;
    EXPECT_FALSE(cluster.validate());
    cluster = good;
    cluster.network.node_bandwidth.v = bad;
    EXPECT_FALSE(cluster.validate());
    cluster = good;
    cluster.gpu.efficiency.attention_backward = bad;
    EXPECT_FALSE(cluster.validate());
  }
}

TEST(ClusterSpec, AnErrorTellsItsFieldBesideTheMessage) {
  const ClusterSpec good = load_cluster("2x8xB200").value();
  const auto field_of = [&](const auto& spoil) {
    ClusterSpec cluster = good;
    spoil(cluster);
    return cluster.validate().error().field;
  };
  EXPECT_EQ(field_of([](ClusterSpec& c) { c.name = ""; }), "name");
  EXPECT_EQ(field_of([](ClusterSpec& c) { c.nodes = 0; }), "nodes");
  EXPECT_EQ(field_of([](ClusterSpec& c) { c.nodes = kMaxGpus; }), "cluster");
  EXPECT_EQ(field_of([](ClusterSpec& c) { c.network.node_bandwidth.v = 0; }), "node_network_gbps");
  EXPECT_EQ(field_of([](ClusterSpec& c) { c.gpu.memory.v = -1; }), "memory_gib");
  EXPECT_EQ(field_of([](ClusterSpec& c) { c.gpu.efficiency.matmul = 2; }), "efficiency.matmul");
  EXPECT_EQ(field_of([](ClusterSpec& c) {
              GpuSpec& gpu = c.gpu;
              gpu.peak_bf16 = gpu.peak_fp16 = gpu.peak_fp8 = gpu.peak_fp32 = FlopsPerSec();
              gpu.peak_mxfp8 = gpu.peak_nvfp4 = FlopsPerSec();
            }),
            "peak_tflops");
  EXPECT_EQ(load_cluster("dgx-h100-65").error().field, "cluster");
  EXPECT_EQ(parsed_cluster(R"({"nodes": 1, "gpu": "B200", "link_topology": "star"})").error().field,
            "link_topology");
}

TEST(ClusterOf, ZeroGpusPerNodeMeansTheUsualNumber) {
  EXPECT_EQ(cluster_of(catalog_gpu("GB200").value(), 2, 0)->gpus(), 144);
  EXPECT_FALSE(cluster_of(catalog_gpu("GB200").value(), 2, -1));
  EXPECT_FALSE(cluster_of(catalog_gpu("GB200").value(), 0, 8));
}

TEST_F(CatalogDir, IsReadBeforeTheEmbeddedOne) {
  write("gpus.json", R"({"b200": {"peak_tflops": {"bf16": 1}, "memory_gib": 2,
      "memory_bandwidth_gbs": 3, "link_bandwidth_gbs": 4}, "Mine": {"peak_tflops": {"bf16": 1},
      "memory_gib": 2, "memory_bandwidth_gbs": 3, "link_bandwidth_gbs": 4}})");
  write("models/my-model.json", "{}");
  write("clusters/lab.json", R"({"nodes": 1, "gpus_per_node": 2, "gpu": "mine"})");
  EXPECT_DOUBLE_EQ(to_gib(catalog_gpu("B200")->memory), 2);
  EXPECT_DOUBLE_EQ(to_gib(catalog_gpu("H100-80GB-SXM")->memory), 79.1);
  EXPECT_EQ(load_cluster("lab")->gpus(), 2);
  EXPECT_EQ(catalog_model_text("my-model").value(), "{}");
  const std::vector<std::string> names = catalog_gpu_names();
  EXPECT_EQ(std::count(names.begin(), names.end(), "Mine"), 1);
  EXPECT_EQ(std::count(names.begin(), names.end(), "B200"), 0);  // the folder's b200 replaces it
  EXPECT_EQ(load_cluster((dir_ / "clusters/lab.json").string())->gpu.name, "Mine");
}

TEST_F(CatalogDir, ABrokenFileIsAnErrorThatNamesIt) {
  write("gpus.json", "[1]");
  EXPECT_TRUE(contains(load_error("1x8xB200"), "gpus.json: got array; want an object"))
      << load_error("1x8xB200");
  write("gpus.json", "{");
  EXPECT_TRUE(contains(load_error("1x8xB200"), "gpus.json"));
  EXPECT_FALSE(catalog_gpu_names().empty());
}

}  // namespace
}  // namespace copus
