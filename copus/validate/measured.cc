#include "copus/validate/measured.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "copus/base/text.h"
#include "copus/cost/framework.h"
#include "copus/spec/catalog.h"
#include "copus/spec/hf_config.h"
#include "copus/spec/plan_fields.h"

namespace copus {
namespace {

constexpr std::int64_t kMost = 1'000'000'000'000;
// The limit of each dimension except dp. The product of all dimensions, with up to kMaxGpus
// replicas, then cannot overflow.
constexpr std::int64_t kMaxDimension = 10'000;

// Columns that every row must fill.
constexpr const char* kRequired[] = {"layers", "hidden", "heads", "seq_len", "gpu"};

// Columns that may be absent or empty.
constexpr const char* kOptional[] = {"id",
                                     "source",
                                     "model",
                                     "ffn_hidden",
                                     "kv_heads",
                                     "head_dim",
                                     "vocab",
                                     "gated_mlp",
                                     "tied_embeddings",
                                     "dropout",
                                     "num_experts",
                                     "topk",
                                     "gpus_per_node",
                                     "node_network_gbps",
                                     "num_gpus",
                                     "precision",
                                     "tp",
                                     "pp",
                                     "vp",
                                     "cp",
                                     "ep",
                                     "etp",
                                     "dp",
                                     "micro_batch",
                                     "global_batch",
                                     "zero_stage",
                                     "recompute",
                                     "seq_parallel",
                                     "framework",
                                     "step_time_s",
                                     "tokens_per_s_per_gpu",
                                     "peak_mem_gib",
                                     "status"};
// Columns that are not read: notes for people, and the predictions that `copus validate --out`
// writes.
constexpr const char* kNotForReading[] = {"citation", "note", "notes", "predicted_step_time_s",
                                          "predicted_peak_mem_gib"};

bool is_one_of(std::string_view column, std::span<const char* const> columns) {
  return std::find(columns.begin(), columns.end(), column) != columns.end();
}
bool is_read(std::string_view column) {
  return is_one_of(column, kRequired) || is_one_of(column, kOptional);
}

// A misspelled column would change predictions silently, so an unknown one is an error.
Result<void> check_column(const std::string& column, const std::string& where) {
  if (is_read(column) || is_one_of(column, kNotForReading)) return {};
  std::vector<std::string> names(std::begin(kRequired), std::end(kRequired));
  names.insert(names.end(), std::begin(kOptional), std::end(kOptional));
  const std::vector<std::string> near = nearest_names(column, names, 1);
  const std::string want =
      near.empty() ? "a column of docs/accuracy.md (note, notes and citation are for remarks)"
                   : near.front() +
                         " (docs/accuracy.md has all columns; note, notes and citation are for "
                         "remarks)";
  return error_in(where, field_error(column, "not a column of measured runs; want {}", want));
}

// Reads the cells of one row by column name, and keeps the first error.
class Cells {
 public:
  Cells(const CsvTable& table, const CsvTable::Row& row, const std::string& where, MeasuredRun& run)
      : table_(table), row_(row), where_(where), run_(run) {}

  // Returns the text of a cell. Empty if the cell is empty or the column is absent.
  std::string_view text(std::string_view column) const {
    COPUS_CHECK(is_read(column));
    const auto found = std::find(table_.columns.begin(), table_.columns.end(), column);
    if (found == table_.columns.end()) return "";
    return row_.cells[static_cast<std::size_t>(found - table_.columns.begin())];
  }
  bool has(std::string_view column) const { return !text(column).empty(); }

  std::string text_or(std::string_view column, const std::string& fallback) {
    if (has(column)) return std::string(text(column));
    assume(column, fallback);
    return fallback;
  }
  std::int64_t integer_or(std::string_view column, std::int64_t fallback) {
    if (!has(column)) {
      assume(column, std::to_string(fallback));
      return fallback;
    }
    return integer(column);
  }
  // Reads a number of ranks or sequences, which is at least 1.
  std::int64_t count_or(std::string_view column, std::int64_t fallback, std::int64_t most) {
    if (!has(column)) return integer_or(column, fallback);
    return integer(column, 1, most);
  }
  std::int64_t integer(std::string_view column, std::int64_t low = 0, std::int64_t high = kMost) {
    const Result<std::int64_t> value = parse_integer(text(column), column, low, high);
    if (!value) fail(value.error());
    return value ? *value : 1;
  }
  bool flag_or(std::string_view column, bool fallback) {
    return integer_or(column, fallback ? 1 : 0) != 0;
  }
  std::optional<double> number(std::string_view column, double low = 1e-9, double high = 1e12) {
    if (!has(column)) return std::nullopt;
    const Result<double> value = parse_number(text(column), column, low, high);
    if (!value) fail(value.error());
    return value ? std::optional(*value) : std::nullopt;
  }

  void assume(std::string_view column, std::string_view value) {
    run_.assumed.push_back(fmt::format("{}={}", column, value));
  }
  void fail(const Error& error) {
    if (!error_) error_ = error_in(where_, error);
  }
  const std::optional<Error>& error() const { return error_; }

 private:
  const CsvTable& table_;
  const CsvTable::Row& row_;
  const std::string& where_;
  MeasuredRun& run_;
  std::optional<Error> error_;
};

// Returns the catalog's model that the row names, which has the sizes that the row leaves out.
// Nothing if the sizes that every row states differ from the model's sizes.
std::optional<ModelSpec> named_model(const Cells& cells, const ModelSpec& stated) {
  const std::string name(cells.text("model"));
  const std::vector<std::string> names = catalog_model_names();
  if (std::find(names.begin(), names.end(), name) == names.end()) return std::nullopt;
  Result<ModelSpec> known = load_model(name);
  if (!known || known->layers != stated.layers || known->hidden != stated.hidden ||
      known->heads != stated.heads) {
    return std::nullopt;
  }
  return std::move(known).value();
}

// Returns the catalog's mixture of experts that has the sizes of the row. Tables lack columns for
// what such models differ in beside these: shared experts, dense layers, latent attention, the
// dimension of a head.
std::optional<ModelSpec> mixture_of_these_sizes(Cells& cells, const ModelSpec& stated) {
  if (!cells.has("num_experts") || !cells.has("topk") || !cells.has("vocab")) return std::nullopt;
  const std::int64_t experts = cells.integer("num_experts"), topk = cells.integer("topk");
  const std::int64_t vocab = cells.integer("vocab");
  for (const std::string& name : catalog_model_names()) {
    Result<ModelSpec> known = load_model(name);
    if (known && known->layers == stated.layers && known->hidden == stated.hidden &&
        known->heads == stated.heads && known->vocab == vocab && known->moe.experts == experts &&
        known->moe.experts_per_token == topk && known->is_moe()) {
      cells.assume("model", name);
      return std::move(known).value();
    }
  }
  return std::nullopt;
}

// Returns a model of the catalog, changed to the sizes that the row states.
ModelSpec read_known_model(Cells& cells, ModelSpec model, std::int64_t seq_len) {
  const auto read = [&](const char* column, std::int64_t& size) {
    size = cells.integer_or(column, size);
  };
  model.max_positions = seq_len;
  read("kv_heads", model.kv_heads);
  if (cells.has("head_dim")) read("head_dim", model.head_dim);
  read("vocab", model.vocab);
  model.gated_mlp = cells.flag_or("gated_mlp", model.gated_mlp);
  model.tied_embeddings = cells.flag_or("tied_embeddings", model.tied_embeddings);
  if (model.moe.experts == 0) {
    read("ffn_hidden", model.ffn);
    return model;
  }
  // A table has one width: that of an expert, or of the model's dense layers.
  if (!cells.has("ffn_hidden") || cells.integer("ffn_hidden") != model.ffn)
    read("ffn_hidden", model.moe.expert_ffn);
  read("num_experts", model.moe.experts);
  read("topk", model.moe.experts_per_token);
  return model;
}

// Names a model that a table does not name, so that rows of one shape are one model.
std::string name_of_shape(const ModelSpec& model) {
  std::string name = fmt::format("{}x{}, {} heads, ffn {}", model.layers, model.hidden, model.heads,
                                 model.is_moe() ? model.moe.expert_ffn : model.ffn);
  if (model.kv_heads != model.heads) name += fmt::format(", {} kv heads", model.kv_heads);
  if (model.is_moe()) name += fmt::format(", {} experts", model.moe.experts);
  return name;
}

// Reads the model of a row. A model that is not from the catalog has one of two shapes: GPT (plain
// MLP, learned positions, LayerNorm, biases) or Llama (gated MLP, rotary positions, RMSNorm, no
// biases).
ModelSpec read_model(Cells& cells, std::int64_t seq_len) {
  ModelSpec model;
  if (cells.has("model")) model.name = cells.text("model");
  model.layers = cells.integer("layers");
  model.hidden = cells.integer("hidden");
  model.heads = cells.integer("heads");
  if (const std::optional<ModelSpec> known = named_model(cells, model)) {
    return read_known_model(cells, *known, seq_len);
  }
  if (const std::optional<ModelSpec> known = mixture_of_these_sizes(cells, model)) {
    return read_known_model(cells, *known, seq_len);
  }
  model.kv_heads = cells.integer_or("kv_heads", model.heads);
  const bool wide = !cells.has("ffn_hidden") || cells.integer("ffn_hidden") == 4 * model.hidden;
  model.gated_mlp = cells.flag_or("gated_mlp", !wide);
  model.ffn = cells.integer_or("ffn_hidden", 4 * model.hidden);
  model.head_dim = cells.has("head_dim") ? cells.integer("head_dim")
                                         : model.hidden / std::max<std::int64_t>(1, model.heads);
  model.vocab = cells.integer_or("vocab", 51'200);
  model.max_positions = seq_len;
  model.tied_embeddings = cells.flag_or("tied_embeddings", !model.gated_mlp);
  if (!model.gated_mlp) {
    model.family = "gpt2";
    model.norm = Norm::kLayerNorm;
    model.positions = Positions::kLearned;
    model.activation = Activation::kGelu;
    model.qkv_bias = model.attention_out_bias = model.mlp_bias = true;
  }
  if (cells.has("num_experts") && cells.integer("num_experts") > 1) {
    model.moe.experts = cells.integer("num_experts");
    model.moe.experts_per_token = cells.integer_or("topk", 2);
    // A table states only one width, which is the width of an expert.
    model.moe.expert_ffn = model.ffn;
  }
  if (!cells.has("model")) model.name = name_of_shape(model);
  return model;
}

// Experts that a row does not say to be cut are cut by tp, unless their ranks would not divide
// dp*cp then.
void read_expert_cut(Cells& cells, MeasuredRun& run) {
  ParallelPlan& plan = run.plan;
  if (cells.has("etp")) {
    plan.etp = cells.integer("etp", 1, kMaxDimension);
  } else if (run.model.is_moe() && plan.dp * plan.cp % plan.ep != 0 &&
             plan.tp * plan.dp * plan.cp % plan.ep == 0) {
    plan.etp = 1;
    cells.assume("etp", "1");
  }
  plan = with_settled_etp(std::move(plan));
}

void read_plan(Cells& cells, MeasuredRun& run) {
  ParallelPlan& plan = run.plan;
  plan.tp = cells.count_or("tp", 1, kMaxDimension);
  plan.pp = cells.count_or("pp", 1, kMaxDimension);
  plan.cp = cells.count_or("cp", 1, kMaxDimension);
  plan.ep = cells.count_or("ep", 1, kMaxDimension);
  const std::int64_t others = std::max<std::int64_t>(1, plan.tp * plan.pp * plan.cp);
  const std::int64_t gpus = cells.has("num_gpus") ? cells.integer("num_gpus") : 0;
  plan.dp = cells.has("dp") || gpus == 0 ? cells.count_or("dp", 1, kMaxGpus)
                                         : std::max<std::int64_t>(1, gpus / others);
  if (!cells.has("dp") && gpus > 0) cells.assume("dp", std::to_string(plan.dp));
  read_expert_cut(cells, run);
  if (cells.text("vp").starts_with("max")) {
    // Each chunk is one layer.
    plan.vp = std::max<std::int64_t>(1, run.model.layers / std::max<std::int64_t>(1, plan.pp));
  } else {
    plan.vp = cells.count_or("vp", 1, kMaxDimension);
  }
  plan.micro_batch = cells.count_or("micro_batch", 1, kMaxGpus);
  run.global_batch = cells.integer_or("global_batch", plan.dp * plan.micro_batch);
  plan.zero = static_cast<int>(std::min<std::int64_t>(9, cells.integer_or("zero_stage", 0)));
  plan.sp = cells.flag_or("seq_parallel", false) && plan.tp > 1;
  run.states_recompute = cells.has("recompute");
  const Result<Recompute> recompute = parse_recompute(cells.text_or("recompute", "none"));
  if (!recompute) cells.fail(recompute.error());
  if (recompute) plan.recompute = *recompute;

  // An engine runs whole micro-batches, so a batch that dp*micro_batch does not divide is rounded
  // up.
  const std::int64_t at_once = std::max<std::int64_t>(1, plan.dp * plan.micro_batch);
  if (run.global_batch % at_once != 0) {
    const std::int64_t whole = (run.global_batch + at_once - 1) / at_once * at_once;
    cells.assume("global_batch", std::to_string(whole));
    run.global_batch = whole;
  }
  if (plan.vp > 1) {
    plan.schedule = ScheduleKind::kInterleaved;
    const std::int64_t micro_batches = plan.micro_batches(run.global_batch);
    if (plan.pp == 1 || micro_batches % plan.pp != 0) {
      // An interleaved schedule needs pp > 1, and pp must divide the number of micro-batches.
      cells.assume("vp", "1");
      plan.vp = 1;
      plan.schedule = ScheduleKind::k1F1B;
    }
  }
  plan.stage_layers = stage_layers(run.model, plan.pp * plan.vp, StageBalance::kEven);
}

Result<ClusterSpec> read_cluster(Cells& cells, std::int64_t gpus) {
  COPUS_TRY(const GpuSpec gpu, catalog_gpu(cells.text("gpu")));
  std::int64_t per_node = cells.integer_or("gpus_per_node", gpu.gpus_per_node);
  per_node = std::clamp<std::int64_t>(per_node, 1, std::max<std::int64_t>(1, gpus));
  const std::int64_t nodes = std::max<std::int64_t>(1, (gpus + per_node - 1) / per_node);
  // A job may fill only a part of each node, as 128 GPUs on two racks of 72 do.
  if (gpus % nodes == 0) per_node = std::max<std::int64_t>(1, gpus / nodes);
  COPUS_TRY(ClusterSpec cluster, cluster_of(gpu, nodes, per_node));
  if (const auto network = cells.number("node_network_gbps")) {
    cluster.network.node_bandwidth = gigabits_per_s(*network);
  } else if (cluster.nodes > 1) {
    cells.assume("node_network_gbps",
                 fmt::format("{:g}", cluster.network.node_bandwidth / gigabits_per_s(1)));
  }
  return cluster;
}

Result<MeasuredRun> read_run(const CsvTable& table, const CsvTable::Row& row,
                             const std::string& where) {
  MeasuredRun run;
  run.where = fmt::format("{}: line {}", where, row.line);
  Cells cells(table, row, run.where, run);
  for (const char* column : kRequired) {
    if (!cells.has(column)) {
      return error_in(run.where, field_error(column, "missing; want a value"));
    }
  }
  run.id = cells.has("id") ? std::string(cells.text("id")) : std::to_string(row.line);
  run.source = cells.has("source") ? std::string(cells.text("source")) : where;
  run.framework = cells.has("framework") ? std::string(cells.text("framework")) : "";
  run.seq_len = cells.integer("seq_len");
  run.model = read_model(cells, run.seq_len);
  if (const auto dropout = cells.number("dropout", 0, 1)) {
    run.states_dropout = true;
    run.model.dropout = *dropout > 0;
  }
  read_plan(cells, run);
  const Result<Precision> precision = parse_precision(cells.text_or("precision", "bf16"));
  if (precision) run.precision = *precision;
  const std::string_view status = cells.text("status");
  run.failed = !status.empty() && status != "ok" && status != "OK";
  if (const auto time = cells.number("step_time_s")) run.step_time = Seconds(*time);
  if (const auto peak = cells.number("peak_mem_gib")) run.peak_memory = gib(*peak);
  if (const auto rate = cells.number("tokens_per_s_per_gpu"); rate && !run.step_time) {
    run.step_time =
        Seconds(static_cast<double>(run.global_batch) * static_cast<double>(run.seq_len) / *rate /
                static_cast<double>(std::max<std::int64_t>(1, run.plan.gpus())));
  }
  const Result<ClusterSpec> cluster = read_cluster(cells, run.plan.gpus());
  if (cells.error()) return *cells.error();

  const auto check = [&]() -> Result<void> {
    if (!cluster) return cluster.error();
    if (!precision) return precision.error();
    if (const std::int64_t gpus = cells.has("num_gpus") ? cells.integer("num_gpus") : 0;
        gpus > 0 && gpus != run.plan.gpus()) {
      return field_error("num_gpus", "got {}, where tp*pp*cp*dp = {}*{}*{}*{} = {}; want the same",
                         gpus, run.plan.tp, run.plan.pp, run.plan.cp, run.plan.dp, run.plan.gpus());
    }
    run.cluster = *cluster;
    COPUS_TRY_VOID(run.model.validate());
    COPUS_TRY_VOID(check_precision(run.cluster.gpu, run.precision));
    return run.plan.validate(run.model, run.cluster, run.seq_len, run.global_batch);
  };
  if (const Result<void> checked = check(); !checked) run.problem = checked.error().message;
  return run;
}

}  // namespace

Result<MeasuredFile> measured_from_csv(CsvTable table, const std::string& where) {
  for (const char* column : kRequired) {
    if (std::find(table.columns.begin(), table.columns.end(), column) == table.columns.end()) {
      return make_error("{}: got no column {:?}; want at least {}", where, column,
                        fmt::join(kRequired, ", "));
    }
  }
  MeasuredFile file;
  file.path = where;
  for (const std::string& column : table.columns) COPUS_TRY_VOID(check_column(column, where));
  for (const CsvTable::Row& row : table.rows) {
    COPUS_TRY(MeasuredRun run, read_run(table, row, where));
    file.runs.push_back(std::move(run));
  }
  file.table = std::move(table);
  return file;
}

Result<MeasuredFile> read_measured(const std::string& path) {
  COPUS_TRY(CsvTable table, read_csv_file(path));
  return measured_from_csv(std::move(table), path);
}

}  // namespace copus
