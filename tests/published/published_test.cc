// Step times that others have measured and published, predicted with the default options.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "copus/base/text.h"
#include "copus/cost/step.h"
#include "copus/spec/catalog.h"

namespace copus {
namespace {

struct Row {
  std::map<std::string, std::string, std::less<>> fields;

  const std::string& text(const char* column) const { return fields.at(column); }
  std::int64_t integer(const char* column) const { return std::stoll(text(column)); }
  double number(const char* column) const { return std::stod(text(column)); }
};

// Rows by column name; lines that start with # are comments.
std::vector<Row> read_rows(const char* path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::vector<std::string> columns;
  std::vector<Row> rows;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    const std::vector<std::string_view> cells = split(line, ',');
    if (columns.empty()) {
      columns.assign(cells.begin(), cells.end());
      continue;
    }
    EXPECT_EQ(cells.size(), columns.size()) << line;
    Row row;
    for (std::size_t i = 0; i < columns.size(); ++i) row.fields.emplace(columns[i], cells[i]);
    rows.push_back(std::move(row));
  }
  return rows;
}

constexpr std::int64_t kSeqLen = 2048;

ModelSpec model_of(const Row& row) {
  ModelSpec model;
  model.name = row.text("model");
  model.family = "gpt2";
  model.layers = row.integer("layers");
  model.hidden = row.integer("hidden");
  model.ffn = 4 * model.hidden;
  model.heads = model.kv_heads = row.integer("heads");
  model.head_dim = model.hidden / model.heads;
  model.vocab = 51'200;
  model.max_positions = kSeqLen;
  model.gated_mlp = false;
  model.tied_embeddings = true;
  model.norm = Norm::kLayerNorm;
  model.positions = Positions::kLearned;
  model.qkv_bias = model.attention_out_bias = model.mlp_bias = true;
  model.dropout = true;
  return model;
}

ParallelPlan plan_of(const Row& row) {
  ParallelPlan plan;
  plan.tp = row.integer("tp");
  plan.pp = row.integer("pp");
  plan.vp = row.integer("vp");
  plan.dp = row.integer("dp");
  plan.micro_batch = row.integer("micro_batch");
  plan.recompute = parse_recompute(row.text("recompute")).value();
  plan.sp = row.integer("sp") == 1;
  if (plan.vp > 1) plan.schedule = ScheduleKind::kInterleaved;
  return plan;
}

TEST(PublishedStepTimes, OfMegatronOnA100sArePredictedWithinTenPercent) {
  const std::vector<Row> rows = read_rows(COPUS_PUBLISHED_CSV);
  ASSERT_EQ(rows.size(), 9u);
  double sum = 0;
  for (const Row& row : rows) {
    const ModelSpec model = model_of(row);
    ASSERT_TRUE(model.validate().has_value());
    const ParallelPlan plan = plan_of(row);
    const std::int64_t nodes = row.integer("gpus") / 8, batch = row.integer("global_batch");
    const ClusterSpec cluster = cluster_of(catalog_gpu("A100-80GB-SXM").value(), nodes, 8).value();
    const Result<void> valid = plan.validate(model, cluster, kSeqLen, batch);
    ASSERT_TRUE(valid.has_value()) << valid.error().message;
    const StepModel step(model, cluster, kSeqLen, batch, CostOptions());
    const StepEstimate estimate = step.predict(plan);
    const double measured = row.number("step_time_s");
    const double error = estimate.time.v / measured - 1;
    std::printf("%-5s %4lld GPUs %-26s %6.2f s measured, %6.2f s predicted (%+.1f%%)\n",
                model.name.c_str(), static_cast<long long>(plan.gpus()), short_name(plan).c_str(),
                measured, estimate.time.v, 100 * error);
    EXPECT_LT(std::abs(error), 0.10) << model.name << ' ' << short_name(plan);
    // They ran, so they fitted.
    EXPECT_LE(estimate.memory.total(), step.capacity()) << model.name << ' ' << short_name(plan);
    sum += std::abs(error);
  }
  std::printf("mean error %.1f%%\n", 100 * sum / static_cast<double>(rows.size()));
}

}  // namespace
}  // namespace copus
