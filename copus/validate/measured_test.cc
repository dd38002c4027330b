#include "copus/validate/measured.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "copus/spec/hf_config.h"

namespace copus {
namespace {

// The columns of one made-up run. Each test changes the columns that it is about. A column that is
// set to "-" is left out.
using Row = std::map<std::string, std::string>;

Row gpt() {
  return {{"layers", "24"},    {"hidden", "2048"},       {"heads", "16"},
          {"seq_len", "1024"}, {"gpu", "A100-80GB-SXM"}, {"num_gpus", "16"}};
}
Row with(Row row, const Row& changes) {
  for (const auto& [column, value] : changes) row[column] = value;
  std::erase_if(row, [](const auto& entry) { return entry.second == "-"; });
  return row;
}

Result<MeasuredFile> read(const Row& row) {
  CsvTable table;
  table.rows.push_back({7, {}});
  for (const auto& [column, value] : row) {
    table.columns.push_back(column);
    table.rows[0].cells.push_back(value);
  }
  return measured_from_csv(table, "t.csv");
}
MeasuredRun run_of(const Row& changes) {
  const Result<MeasuredFile> file = read(with(gpt(), changes));
  EXPECT_TRUE(file) << file.error().message;
  return file ? file->runs[0] : MeasuredRun{};
}
std::string error_of(const Row& changes) {
  const Result<MeasuredFile> file = read(with(gpt(), changes));
  return file ? "" : file.error().message;
}
bool assumed(const MeasuredRun& run, const std::string& text) {
  return std::find(run.assumed.begin(), run.assumed.end(), text) != run.assumed.end();
}

TEST(MeasuredRun, StatesEveryDefault) {
  const MeasuredRun run = run_of({});
  EXPECT_EQ(run.problem, "");
  for (const char* text :
       {"kv_heads=16", "ffn_hidden=8192", "gated_mlp=0", "vocab=51200", "tied_embeddings=1", "tp=1",
        "pp=1", "cp=1", "ep=1", "dp=16", "vp=1", "micro_batch=1", "global_batch=16", "zero_stage=0",
        "recompute=none", "seq_parallel=0", "precision=bf16", "gpus_per_node=8"}) {
    EXPECT_TRUE(assumed(run, text)) << text;
  }
  EXPECT_EQ(run.model.vocab, 51'200);
  EXPECT_EQ(run.plan.dp, 16);
  EXPECT_EQ(run.source, "t.csv");
  EXPECT_EQ(run.id, "7");
  EXPECT_EQ(run.where, "t.csv: line 7");
}

TEST(MeasuredRun, AssumesNothingThatIsStated) {
  const MeasuredRun run = run_of({{"kv_heads", "16"},
                                  {"ffn_hidden", "8192"},
                                  {"gated_mlp", "0"},
                                  {"vocab", "50257"},
                                  {"tied_embeddings", "1"},
                                  {"tp", "2"},
                                  {"pp", "2"},
                                  {"cp", "1"},
                                  {"ep", "1"},
                                  {"dp", "4"},
                                  {"vp", "1"},
                                  {"micro_batch", "2"},
                                  {"global_batch", "64"},
                                  {"zero_stage", "1"},
                                  {"recompute", "full"},
                                  {"seq_parallel", "1"},
                                  {"precision", "fp16"},
                                  {"gpus_per_node", "8"},
                                  {"node_network_gbps", "800"}});
  EXPECT_EQ(run.problem, "");
  EXPECT_TRUE(run.assumed.empty()) << run.assumed[0];
  EXPECT_EQ(run.plan.gpus(), 16);
  EXPECT_EQ(run.cluster.nodes, 2);
  EXPECT_EQ(run.plan.recompute, Recompute::kFull);
  EXPECT_TRUE(run.plan.sp);
  EXPECT_EQ(run.precision, Precision::kFp16);
}

TEST(MeasuredRun, AModelOfTheCatalogHasTheSizesThatARowLeavesOut) {
  const Row llama = {
      {"model", "llama-3-8b"}, {"layers", "32"}, {"hidden", "4096"}, {"heads", "32"}};
  const ModelSpec known = load_model("llama-3-8b").value();
  const MeasuredRun run = run_of(llama);
  EXPECT_EQ(run.model.total_params(), known.total_params());
  EXPECT_TRUE(assumed(run, "vocab=128256"));
  EXPECT_TRUE(assumed(run, "kv_heads=8"));
  // A size that the row states overrides the catalog.
  Row padded = llama;
  padded["vocab"] = "128512";
  EXPECT_EQ(run_of(padded).model.vocab, 128512);
  EXPECT_EQ(run_of(padded).model.kv_heads, 8);
  // If the number of layers differs, the name is only a label.
  Row other = llama;
  other["layers"] = "16";
  EXPECT_EQ(run_of(other).model.vocab, 51200);
}

// Columns cannot say latent attention, shared experts, dense layers or a head's dimension.
TEST(MeasuredRun, AMixtureOfTheCatalogsSizesIsThatModel) {
  const Row deepseek = {{"layers", "61"},
                        {"hidden", "7168"},
                        {"heads", "128"},
                        {"vocab", "129280"},
                        {"ffn_hidden", "2048"},
                        {"num_experts", "256"},
                        {"topk", "8"},
                        {"num_gpus", "1024"},
                        {"tp", "2"},
                        {"pp", "16"},
                        {"dp", "32"},
                        {"ep", "64"},
                        {"seq_parallel", "1"},
                        {"gpu", "H100-80GB-SXM"},
                        {"kv_heads", "128"},
                        {"gated_mlp", "1"},
                        {"tied_embeddings", "0"}};
  const MeasuredRun run = run_of(deepseek);
  EXPECT_EQ(run.model.total_params(), load_model("deepseek-v3").value().total_params());
  EXPECT_TRUE(assumed(run, "model=deepseek-v3"));
  // Its experts divide tp*cp*dp only if tp does not cut them.
  EXPECT_EQ(run.plan.expert_tp(), 1);
  EXPECT_TRUE(assumed(run, "etp=1"));
  // The width may be that of the dense layers.
  Row dense_width = deepseek;
  dense_width["ffn_hidden"] = "18432";
  EXPECT_EQ(run_of(dense_width).model.moe.expert_ffn, 2048);
  // Fewer layers make another model.
  Row shorter = deepseek;
  shorter["layers"] = "60";
  EXPECT_FALSE(run_of(shorter).model.mla.enabled);
  Row cut = deepseek;
  cut["ep"] = "16";
  EXPECT_EQ(run_of(cut).plan.expert_tp(), 2);
  cut["etp"] = "1";
  EXPECT_EQ(run_of(cut).plan.expert_tp(), 1);
}

TEST(MeasuredFile, AnUnknownColumnIsAnErrorThatNamesTheNearest) {
  EXPECT_EQ(error_of({{"step_time", "1"}}),
            "t.csv: step_time: not a column of measured runs; want step_time_s (docs/accuracy.md "
            "has all columns; note, notes and citation are for remarks)");
  EXPECT_NE(error_of({{"head_dims", "64"}}).find("want head_dim ("), std::string::npos);
  EXPECT_EQ(error_of({{"qqqqqqqqqq", "1"}}),
            "t.csv: qqqqqqqqqq: not a column of measured runs; want a column of docs/accuracy.md "
            "(note, notes and citation are for remarks)");
  EXPECT_EQ(error_of({{"note", "text"}, {"citation", "text"}}), "");
}

TEST(MeasuredRun, RowsOfOneShapeAreOneModelWithoutAName) {
  const std::string name = run_of({}).model.name;
  EXPECT_EQ(name, "24x2048, 16 heads, ffn 8192");
  EXPECT_EQ(run_of({{"tp", "2"}, {"seq_len", "2048"}}).model.name, name);
  EXPECT_NE(run_of({{"layers", "12"}}).model.name, name);
  EXPECT_NE(run_of({{"kv_heads", "4"}}).model.name, name);
  EXPECT_NE(run_of({{"num_experts", "8"}}).model.name, name);
  EXPECT_EQ(run_of({{"model", "mine"}}).model.name, "mine");
}

TEST(MeasuredRun, DropoutIsThereWhereItIsStated) {
  EXPECT_FALSE(run_of({}).model.dropout);
  EXPECT_FALSE(run_of({}).states_dropout);
  EXPECT_TRUE(run_of({{"dropout", "0.1"}}).model.dropout);
  EXPECT_FALSE(run_of({{"dropout", "0"}}).model.dropout);
  EXPECT_TRUE(run_of({{"dropout", "0"}}).states_dropout);
  EXPECT_NE(error_of({{"dropout", "10"}}).find("dropout: got "), std::string::npos);
}

TEST(MeasuredRun, AJobMayFillAPartOfEachRack) {
  const MeasuredRun run = run_of({{"gpu", "GB200"}, {"num_gpus", "128"}});
  EXPECT_EQ(run.problem, "");
  EXPECT_EQ(run.cluster.nodes, 2);
  EXPECT_EQ(run.cluster.gpus_per_node, 64);
}

TEST(MeasuredRun, AnEmptyCellIsAColumnThatIsNotThere) {
  const MeasuredRun run = run_of({{"vocab", ""}, {"dp", ""}, {"step_time_s", ""}});
  EXPECT_TRUE(assumed(run, "vocab=51200"));
  EXPECT_TRUE(assumed(run, "dp=16"));
  EXPECT_FALSE(run.step_time);
}

TEST(MeasuredRun, DataParallelismIsWhatIsLeftOfTheGpus) {
  EXPECT_EQ(run_of({{"tp", "4"}, {"pp", "2"}}).plan.dp, 2);
  EXPECT_EQ(run_of({{"tp", "4"}, {"num_gpus", "-"}}).plan.dp, 1);
}

TEST(MeasuredRun, AGatedMlpIsALlama) {
  const MeasuredRun run = run_of({{"gated_mlp", "1"}, {"ffn_hidden", "5632"}});
  EXPECT_EQ(run.model.norm, Norm::kRmsNorm);
  EXPECT_EQ(run.model.positions, Positions::kRope);
  EXPECT_FALSE(run.model.tied_embeddings);
  EXPECT_EQ(run_of({}).model.positions, Positions::kLearned);
}

TEST(MeasuredRun, AsManyChunksAsLayersWhereVpIsTheMost) {
  const Row pipeline = {{"pp", "4"}, {"dp", "4"}, {"global_batch", "64"}};
  const MeasuredRun most = run_of(with(pipeline, {{"vp", "max (1 layer per stage)"}}));
  EXPECT_EQ(most.plan.vp, 6);
  EXPECT_EQ(most.plan.schedule, ScheduleKind::kInterleaved);
  EXPECT_EQ(most.problem, "");
  // 4 stages cannot interleave 3 micro-batches.
  const MeasuredRun none = run_of(with(pipeline, {{"vp", "2"}, {"global_batch", "12"}}));
  EXPECT_EQ(none.plan.vp, 1);
  EXPECT_TRUE(assumed(none, "vp=1"));
  EXPECT_EQ(none.problem, "");
}

TEST(MeasuredRun, ABatchThatDoesNotDivideIsRoundedUpAndSaysSo) {
  const MeasuredRun run = run_of({{"dp", "16"}, {"micro_batch", "2"}, {"global_batch", "40"}});
  EXPECT_EQ(run.global_batch, 64);
  EXPECT_TRUE(assumed(run, "global_batch=64"));
  EXPECT_EQ(run.problem, "");
}

TEST(MeasuredRun, LayersThatDoNotDivideAreSplitOverTheStages) {
  const MeasuredRun run = run_of({{"layers", "22"}, {"pp", "8"}, {"num_gpus", "8"}});
  EXPECT_EQ(run.problem, "");
  std::int64_t sum = 0;
  for (const std::int64_t layers : run.plan.stage_layers) sum += layers;
  EXPECT_EQ(run.plan.stage_layers.size(), 8U);
  EXPECT_EQ(sum, 22);
}

TEST(MeasuredRun, TheTimeFollowsFromTheRateWhereItIsNotStated) {
  const MeasuredRun run = run_of({{"global_batch", "32"}, {"tokens_per_s_per_gpu", "512"}});
  EXPECT_DOUBLE_EQ(run.step_time->v, 32.0 * 1024 / 512 / 16);
  EXPECT_DOUBLE_EQ(run_of({{"step_time_s", "3"}, {"tokens_per_s_per_gpu", "512"}}).step_time->v, 3);
}

TEST(MeasuredRun, AnyStatusButOkIsAFailure) {
  EXPECT_FALSE(run_of({}).failed);
  EXPECT_FALSE(run_of({{"status", "ok"}}).failed);
  EXPECT_TRUE(run_of({{"status", "fail"}}).failed);
}

TEST(MeasuredRun, WhatCannotBePricedSaysWhy) {
  const MeasuredRun gpu = run_of({{"gpu", "A100-80G-SXM"}});
  EXPECT_NE(gpu.problem.find("A100-80GB-SXM"), std::string::npos) << gpu.problem;
  const MeasuredRun stages = run_of({{"pp", "32"}, {"num_gpus", "32"}});
  EXPECT_NE(stages.problem.find("pp: got 32"), std::string::npos) << stages.problem;
  EXPECT_NE(run_of({{"precision", "fp8"}}).problem, "");  // an A100 has no FP8 units
  EXPECT_NE(run_of({{"precision", "int4"}}).problem.find("precision: got \"int4\""),
            std::string::npos);
  EXPECT_NE(run_of({{"heads", "0"}}).problem, "");
  EXPECT_NE(run_of({{"zero_stage", "7"}}).problem, "");
  EXPECT_NE(run_of({{"layers", "999999999999"}, {"pp", "9999"}, {"vp", "9999"}}).problem, "");
}

TEST(MeasuredFile, ABadCellNamesLineColumnAndValue) {
  EXPECT_EQ(error_of({{"layers", "many"}}).find("t.csv: line 7: layers: got \"many\"; want an "),
            0U)
      << error_of({{"layers", "many"}});
  EXPECT_EQ(error_of({{"tp", "-2"}}).find("t.csv: line 7: tp: got \"-2\"; want an integer"), 0U);
  EXPECT_EQ(error_of({{"dp", "1.5"}}).find("t.csv: line 7: dp: got \"1.5\""), 0U);
  for (const char* value : {"fast", "nan", "inf", "0", "-1"}) {
    EXPECT_EQ(error_of({{"step_time_s", value}}).find("t.csv: line 7: step_time_s: got "), 0U)
        << value;
  }
  for (const char* column : {"tp", "pp", "cp", "ep", "dp", "vp", "micro_batch"}) {
    EXPECT_EQ(
        error_of({{column, "0"}})
            .find(fmt::format("t.csv: line 7: {}: got \"0\"; want an integer from 1", column)),
        0U)
        << column;
  }
  EXPECT_EQ(error_of({{"recompute", "some"}}).find("t.csv: line 7: recompute: "), 0U);
  EXPECT_EQ(error_of({{"seq_len", ""}}), "t.csv: line 7: seq_len: missing; want a value");
}

TEST(MeasuredFile, ABadCellsColumnIsToldBesideTheMessage) {
  for (const auto& [column, cell] :
       {std::pair{"layers", "many"}, std::pair{"tp", "-2"}, std::pair{"step_time_s", "fast"},
        std::pair{"seq_len", ""}, std::pair{"recompute", "some"}}) {
    EXPECT_EQ(read(with(gpt(), {{column, cell}})).error().field, column);
  }
}

TEST(MeasuredFile, AColumnWithoutADefaultMustBeThere) {
  for (const char* column : {"layers", "hidden", "heads", "seq_len", "gpu"}) {
    EXPECT_EQ(error_of({{column, "-"}}),
              fmt::format("t.csv: got no column \"{}\"; want at least layers, hidden, heads, "
                          "seq_len, gpu",
                          column));
  }
}

}  // namespace
}  // namespace copus
