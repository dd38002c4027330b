#include "copus/spec/parallel_plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "copus/base/check.h"
#include "copus/spec/stage_split.h"

namespace copus {
namespace {

// Far above any real value; keeps products with the counts of a plan inside 64 bits.
constexpr std::int64_t kMaxBatch = 1'000'000'000;
constexpr std::int64_t kMaxSeqLen = 1'000'000'000;

// "1, 2, 4, 8, …": the small divisors of `n`, for a person to choose from.
std::string divisors(std::int64_t n) {
  constexpr std::size_t kShown = 6;
  constexpr std::int64_t kTried = 10'000;  // bounds the work on a large prime
  std::vector<std::int64_t> found;
  for (std::int64_t d = 1; d <= std::min(n, kTried) && found.size() <= kShown; ++d) {
    if (n % d == 0) found.push_back(d);
  }
  const bool more = found.size() > kShown || n > kTried;
  if (found.size() > kShown) found.pop_back();
  return fmt::format("{}{}", fmt::join(found, ", "), more ? ", …" : "");
}

Error does_not_divide(std::string_view field, std::int64_t got, std::int64_t n,
                      std::string_view what) {
  return make_error("{}: got {}, which does not divide {} {}; want a divisor ({})", field, got, n,
                    what, divisors(n));
}

Result<void> check_ranges(const ParallelPlan& plan, std::int64_t seq_len,
                          std::int64_t global_batch) {
  struct Range {
    std::string_view field;
    std::int64_t value, low, high;
  };
  const Range ranges[] = {
      {"tp", plan.tp, 1, kMaxGpus},
      {"cp", plan.cp, 1, kMaxGpus},
      {"pp", plan.pp, 1, kMaxPipeline},
      {"vp", plan.vp, 1, kMaxChunks / std::clamp<std::int64_t>(plan.pp, 1, kMaxPipeline)},
      {"dp", plan.dp, 1, kMaxGpus},
      {"ep", plan.ep, 1, kMaxGpus},
      {"micro_batch", plan.micro_batch, 1, kMaxGpus},
      {"zero", plan.zero, 0, 3},
      {"seq_len", seq_len, 1, kMaxSeqLen},
      {"global_batch", global_batch, 1, kMaxBatch},
  };
  for (const Range& r : ranges) {
    if (r.value < r.low || r.value > r.high) {
      return make_error("{}: got {}; want {} to {}", r.field, r.value, r.low, r.high);
    }
  }
  return {};
}

Result<void> check_size(const ParallelPlan& plan, const ClusterSpec& cluster) {
  // As doubles: four counts of up to a million each may overflow 64 bits, and above 2^53 they are
  // wrong in any case.
  const double product = static_cast<double>(plan.tp) * static_cast<double>(plan.cp) *
                         static_cast<double>(plan.pp) * static_cast<double>(plan.dp);
  if (product == static_cast<double>(cluster.gpus())) return {};
  return make_error("plan: tp*cp*pp*dp = {:.0f} ({}*{}*{}*{}); want {}, the GPUs of cluster {}",
                    product, plan.tp, plan.cp, plan.pp, plan.dp, cluster.gpus(), cluster.name);
}

Result<void> check_tensor(const ParallelPlan& plan, const ModelSpec& model, std::int64_t seq_len) {
  const std::int64_t tp = plan.tp;
  if (model.heads % tp != 0) return does_not_divide("tp", tp, model.heads, "attention heads");
  // With fewer KV heads than ranks each head is held by tp/kv_heads of them. Latent attention has
  // no KV heads to split.
  if (!model.mla.enabled && model.kv_heads % tp != 0 && tp % model.kv_heads != 0) {
    return make_error("tp: got {}; want a divisor or a multiple of the {} KV heads", tp,
                      model.kv_heads);
  }
  if (model.hidden % tp != 0) return does_not_divide("tp", tp, model.hidden, "hidden units");
  const bool has_dense = model.moe_layers() < model.layers;
  if (has_dense && model.ffn % tp != 0) return does_not_divide("tp", tp, model.ffn, "MLP units");
  if (model.is_moe() && model.moe.expert_ffn % tp != 0) {
    return does_not_divide("tp", tp, model.moe.expert_ffn, "units of an expert");
  }
  if (plan.sp && tp == 1) return make_error("sp: got 1 with tp=1; want sp=0, or tp above 1");
  if (plan.cp > 1 && seq_len % (2 * plan.cp) != 0) {
    return make_error(
        "cp: got {} at sequence length {}; want 2*cp to divide it, because each rank takes one "
        "early and one late "
        "piece",
        plan.cp, seq_len);
  }
  if (plan.sp && seq_len % (plan.cp * tp) != 0) {
    return make_error("sp: got 1 at sequence length {}; want a multiple of cp*tp = {}*{}", seq_len,
                      plan.cp, tp);
  }
  return {};
}

Result<void> check_stages(const ParallelPlan& plan, const ModelSpec& model, StageCut cut) {
  const std::int64_t chunks = plan.pp * plan.vp;
  if (plan.stage_layers.empty()) {
    if (model.layers % chunks == 0 || (cut == StageCut::kWork && chunks <= model.layers)) return {};
    const std::string got = plan.vp == 1 ? fmt::format("pp: got {}", plan.pp)
                                         : fmt::format("pp*vp: got {}*{}", plan.pp, plan.vp);
    if (cut == StageCut::kWork) {
      return make_error("{}, more than {} layers; want at most so many", got, model.layers);
    }
    if (chunks > model.layers + 2) {
      return make_error("{}, more than {} layers; want a divisor ({})", got, model.layers,
                        divisors(model.layers));
    }
    constexpr std::int64_t kShown = 16;
    const std::string split =
        chunks > kShown
            ? "a split"
            : fmt::format(
                  "split={}",
                  fmt::join(expand(balance_chunks(model.layers, chunks, 0, 0), chunks), "-"));
    return make_error("{}, which does not divide {} layers; want a divisor ({}) or {}", got,
                      model.layers, divisors(model.layers), split);
  }
  const auto entries = static_cast<std::int64_t>(plan.stage_layers.size());
  if (entries != chunks) {
    return make_error("stage_layers: got {} entries; want pp*vp = {}*{} = {}", entries, plan.pp,
                      plan.vp, chunks);
  }
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < plan.stage_layers.size(); ++i) {
    const std::int64_t layers = plan.stage_layers[i];
    // An end may go without layers: it still has the embedding or the head.
    const bool is_end = i == 0 || i + 1 == plan.stage_layers.size();
    if (layers < (is_end ? 0 : 1) || layers > model.layers) {
      return make_error("stage_layers: got {} layers in chunk {}; want {} to {}", layers, i,
                        is_end ? 0 : 1, model.layers);
    }
    sum += layers;
  }
  if (sum != model.layers) {
    return make_error("stage_layers: got {} layers in all; want {}", sum, model.layers);
  }
  return {};
}

Result<void> check_batch(const ParallelPlan& plan, std::int64_t global_batch) {
  const std::int64_t pass = plan.dp * plan.micro_batch;
  if (global_batch % pass == 0) return {};
  const std::int64_t above = (global_batch / pass + 1) * pass;
  std::string or_micro_batch;
  if (global_batch % plan.dp == 0) {
    or_micro_batch = fmt::format(", or a micro_batch that divides {} ({})", global_batch / plan.dp,
                                 divisors(global_batch / plan.dp));
  }
  return make_error(
      "global_batch: got {}; want a multiple of dp*micro_batch = {}*{} ({}){}", global_batch,
      plan.dp, plan.micro_batch,
      above > pass ? fmt::format("{} or {}", above - pass, above) : fmt::format("{}", above),
      or_micro_batch);
}

Result<void> check_schedule_kind(const ParallelPlan& plan, std::int64_t global_batch) {
  const bool interleaved = plan.schedule == ScheduleKind::kInterleaved;
  if (plan.vp > 1 && plan.pp == 1) {
    return make_error("vp: got {} with pp=1; want 1, or pp above 1", plan.vp);
  }
  if (plan.vp > 1 && !interleaved) {
    return make_error("schedule: got {} with vp={}; want interleaved, or vp=1",
                      to_string(plan.schedule), plan.vp);
  }
  if (plan.vp == 1 && interleaved) {
    return make_error("schedule: got interleaved with vp=1; want vp of 2 or more, or 1f1b");
  }
  const std::int64_t micro_batches = plan.micro_batches(global_batch);
  if (interleaved && micro_batches % plan.pp != 0) {
    return make_error(
        "vp: got {} with {} micro-batches; want a multiple of pp={} micro-batches, or vp=1",
        plan.vp, micro_batches, plan.pp);
  }
  if (plan.zero >= 2 && plan.pp > 1) {
    return make_error(
        "zero: got {} with pp={}; want 0 or 1, because gradients would be reduced after every "
        "micro-batch",
        plan.zero, plan.pp);
  }
  return {};
}

Result<void> check_experts(const ParallelPlan& plan, const ModelSpec& model) {
  if (plan.ep == 1) return {};
  if (!model.is_moe()) {
    return make_error("ep: got {}; want 1, because {} has no experts", plan.ep, model.name);
  }
  if (plan.tp > 1 && !plan.sp) {
    return make_error(
        "sp: got 0 with tp={} and ep={}; want 1, because experts exchange split sequences", plan.tp,
        plan.ep);
  }
  if (model.moe.experts % plan.ep != 0) {
    return does_not_divide("ep", plan.ep, model.moe.experts, "experts");
  }
  if ((plan.dp * plan.cp) % plan.ep != 0) {
    return does_not_divide("ep", plan.ep, plan.dp * plan.cp, "ranks of dp*cp");
  }
  return {};
}

}  // namespace

std::int64_t ParallelPlan::chunk_layers(std::int64_t index, const ModelSpec& model) const {
  COPUS_CHECK(index >= 0 && index < pp * vp);
  if (stage_layers.empty()) return model.layers / (pp * vp);
  COPUS_CHECK(index < static_cast<std::int64_t>(stage_layers.size()));
  return stage_layers[static_cast<std::size_t>(index)];
}

Result<void> ParallelPlan::validate(const ModelSpec& model, const ClusterSpec& cluster,
                                    std::int64_t seq_len, std::int64_t global_batch,
                                    StageCut cut) const {
  COPUS_TRY_VOID(check_ranges(*this, seq_len, global_batch));
  COPUS_TRY_VOID(check_size(*this, cluster));
  COPUS_TRY_VOID(check_tensor(*this, model, seq_len));
  COPUS_TRY_VOID(check_stages(*this, model, cut));
  COPUS_TRY_VOID(check_batch(*this, global_batch));
  COPUS_TRY_VOID(check_schedule_kind(*this, global_batch));
  return check_experts(*this, model);
}

}  // namespace copus
