// Fuzzes the parsers of what users write with arbitrary bytes. They must not crash, overflow or
// hang. An error must be one line. A parsed value must be the same after printing and parsing, and
// the quantities that depend on it must be computable.
//
// The first byte chooses the parser: m: a model; c: a cluster; p: a plan in JSON; t: the text of a
// plan; s: the shape of a cluster (4x8xB200).
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "copus/base/check.h"
#include "copus/spec/catalog.h"
#include "copus/spec/hf_config.h"
#include "copus/spec/parallel_plan.h"
#include "copus/spec/stage_split.h"

namespace copus {
namespace {

constexpr std::int64_t kSeqLen = 4096;
constexpr std::int64_t kGlobalBatch = 512;

void check_one_line(const Error& error) {
  COPUS_CHECK(!error.message.empty());
  COPUS_CHECK(error.message.find('\n') == std::string::npos);
}

template <typename T>
void check_result(const Result<T>& result) {
  if (!result) check_one_line(result.error());
}

// Gives the cluster as many GPUs as the plan asks for, so that validate() gets past the check of
// the size.
void check_plan(const ParallelPlan& plan, const ModelSpec& model) {
  static const ClusterSpec one = load_cluster("1x1xB200").value();
  ClusterSpec cluster = one;
  const double gpus = static_cast<double>(plan.tp) * static_cast<double>(plan.cp) *
                      static_cast<double>(plan.pp) * static_cast<double>(plan.dp);
  if (gpus <= static_cast<double>(kMaxGpus)) cluster.nodes = plan.gpus();
  const auto valid = plan.validate(model, cluster, kSeqLen, kGlobalBatch);
  check_result(valid);
  COPUS_CHECK(plan_from_json(plan_to_json(plan), "printed")->plan == plan);
  COPUS_CHECK(parse_plan_text(short_name(plan), "printed")->plan == plan);
  if (!valid) return;
  std::int64_t layers = 0;
  for (std::int64_t i = 0; i < plan.pp * plan.vp; ++i) layers += plan.chunk_layers(i, model);
  COPUS_CHECK(layers == model.layers);
  COPUS_CHECK(plan.micro_batches(kGlobalBatch) >= 1);
}

void fuzz_plan(const Result<PartialPlan>& partial) {
  static const ModelSpec dense = load_model("llama-3-8b").value();
  static const ModelSpec moe = load_model("mixtral-8x7b").value();
  check_result(partial);
  if (!partial) return;
  check_plan(partial->plan, dense);
  check_plan(partial->plan, moe);
}

void fuzz_model(std::string_view text) {
  const auto model = parse_hf_config(text, "config.json");
  check_result(model);
  if (!model) return;
  COPUS_CHECK(model->validate().has_value());
  COPUS_CHECK(model->total_params() > 0);
  COPUS_CHECK(model->active_params() > 0);
  COPUS_CHECK(model->active_params() <= model->total_params());
  COPUS_CHECK(std::isfinite(model->forward_flops_per_token(kSeqLen)));
  COPUS_CHECK(model->forward_flops_per_token(kSeqLen) > 0);
  ParallelPlan plan;
  check_plan(plan, *model);
  plan.tp = 8;
  plan.pp = 4;
  check_plan(plan, *model);
  plan.stage_layers = expand(balance_chunks(model->layers, plan.pp, 0.5, 1.5), plan.pp);
  check_plan(plan, *model);
}

void fuzz_cluster(const Result<ClusterSpec>& cluster) {
  check_result(cluster);
  if (!cluster) return;
  COPUS_CHECK(cluster->validate().has_value());
  COPUS_CHECK(cluster->gpus() >= 1 && cluster->gpus() <= kMaxGpus);
  const std::string printed = cluster_to_json(*cluster).dump();
  const auto json = parse_json(printed, "printed");
  COPUS_CHECK(json.has_value());
  const auto again = cluster_from_json(*json, "printed");
  COPUS_CHECK(again.has_value());
  COPUS_CHECK(cluster_to_json(*again).dump() == printed);
}

void fuzz_one(std::string_view input) {
  if (input.empty()) return;
  const std::string_view text = input.substr(1);
  switch (input[0]) {
    case 'm':
      fuzz_model(text);
      return;
    case 't':
      fuzz_plan(parse_plan_text(text, "--plan"));
      return;
    case 'c':
    case 'p': {
      const auto json = parse_json(text, "input");
      check_result(json);
      if (!json) return;
      if (input[0] == 'c') {
        fuzz_cluster(cluster_from_json(*json, "input"));
      } else {
        fuzz_plan(plan_from_json(*json, "input"));
      }
      return;
    }
    case 's':
      // Text that may be a path is skipped, because the target must not depend on files.
      if (!text.empty() && text[0] >= '0' && text[0] <= '9' &&
          text.find('/') == std::string_view::npos && !text.ends_with(".json")) {
        fuzz_cluster(load_cluster(text));
      }
      return;
    default:
      return;
  }
}

}  // namespace
}  // namespace copus

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  copus::fuzz_one(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
