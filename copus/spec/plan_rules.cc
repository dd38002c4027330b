#include "copus/spec/plan_rules.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "copus/base/text.h"
#include "copus/spec/plan_fields.h"
#include "copus/spec/stage_split.h"

namespace copus {
namespace {

using Int = std::int64_t;

// Limits far above any real value. Products with the counts of a plan then fit 64 bits.
constexpr Int kMaxBatch = 1'000'000'000;
constexpr Int kMaxSeqLen = 1'000'000'000;

// Returns the small divisors of `n` for an error message: "1, 2, 4, 8, …".
std::string small_divisors(Int n) {
  constexpr std::size_t kShown = 6;
  constexpr Int kTried = 10'000;  // bounds the work on a large prime
  std::vector<Int> found;
  for (Int d = 1; d <= std::min(n, kTried) && found.size() <= kShown; ++d) {
    if (n % d == 0) found.push_back(d);
  }
  const bool more = found.size() > kShown || n > kTried;
  if (found.size() > kShown) found.pop_back();
  return fmt::format("{}{}", fmt::join(found, ", "), more ? ", …" : "");
}

Error does_not_divide(std::string_view field, Int got, Int n, std::string_view what) {
  return field_error(field, "got {}, which does not divide {} {}; want a divisor ({})", got, n,
                     what, small_divisors(n));
}

Error out_of_range(std::string_view field, Int got, Int low, Int high) {
  return field_error(field, "got {}; want {} to {}", got, low, high);
}

template <PlanField field, auto member, Int high>
constexpr PlanRule count_up_to() {
  return {{field},
          [](const ParallelPlan& plan, const PlanJob&) noexcept {
            return plan.*member >= 1 && plan.*member <= high;
          },
          [](const ParallelPlan& plan, const PlanJob&) {
            return out_of_range(name_of(field), plan.*member, 1, high);
          }};
}

Int most_virtual_stages(Int pp) { return kMaxChunks / std::clamp<Int>(pp, 1, kMaxPipeline); }

double gpus_as_double(const ParallelPlan& plan) noexcept {
  return static_cast<double>(plan.tp) * static_cast<double>(plan.cp) *
         static_cast<double>(plan.pp) * static_cast<double>(plan.dp);
}

bool has_dense_layers(const ModelSpec& model) { return model.moe_layers() < model.layers; }

bool divides_layers(const ParallelPlan& plan, const ModelSpec& model) {
  return model.layers % (plan.pp * plan.vp) == 0;
}

Error stages_do_not_divide(const ParallelPlan& plan, const PlanJob& job) {
  const Int layers = job.model.layers, chunks = plan.pp * plan.vp;
  const std::string field = plan.vp == 1 ? "pp" : "pp*vp";
  const std::string got =
      plan.vp == 1 ? fmt::format("{}", plan.pp) : fmt::format("{}*{}", plan.pp, plan.vp);
  if (job.cut == StageCut::kWork) {
    return field_error(field, "got {}; want at most {}, the number of layers", got, layers);
  }
  if (chunks > layers + 2) {
    return field_error(field, "got {}, more than {} layers; want a divisor ({})", got, layers,
                       small_divisors(layers));
  }
  // If the layers, the embedding and the head together divide evenly, each end takes one layer
  // less.
  ParallelPlan with_split;
  const double ends = (layers + 2) % chunks == 0 ? 1 : 0;
  with_split.stage_layers = expand(balance_chunks(layers, chunks, ends, ends), chunks);
  return field_error(
      field, "got {}, which does not divide {} layers; want a divisor ({}) or split={}", got,
      layers, small_divisors(layers), value_text(with_split, PlanField::kStageLayers));
}

// Returns the fewest layers that a chunk may hold. The first and the last chunk may hold none,
// because they have the embedding or the head.
Int fewest_layers(const std::vector<Int>& layers, std::size_t chunk) {
  return chunk == 0 || chunk + 1 == layers.size() ? 0 : 1;
}

// Returns the index of the first chunk with too few or too many layers. If there is none, returns
// the number of chunks.
std::size_t odd_chunk(const std::vector<Int>& layers, const ModelSpec& model) noexcept {
  std::size_t i = 0;
  while (i < layers.size() && layers[i] >= fewest_layers(layers, i) && layers[i] <= model.layers) {
    ++i;
  }
  return i;
}

Int sum_of(const std::vector<Int>& layers) noexcept {
  return std::accumulate(layers.begin(), layers.end(), Int{0});
}

// Returns the width of all shared experts of a layer.
Int shared_ffn(const ModelSpec& model) {
  return model.is_moe() ? model.moe.shared_experts * model.moe.expert_ffn : 0;
}

// Returns the name of the field that says over how many ranks an expert is cut.
std::string_view expert_cut(const ParallelPlan& plan) { return plan.etp == 0 ? "tp" : "etp"; }

// Returns the ranks of a stage. REQUIRES: the counts are in range.
Int expert_ranks(const ParallelPlan& plan) { return plan.tp * plan.cp * plan.dp; }

Error expert_ranks_do_not_divide(const ParallelPlan& plan, const PlanJob& /*job*/) {
  const Int etp = plan.expert_tp(), ranks = expert_ranks(plan);
  if (ranks % etp != 0) return does_not_divide("etp", etp, ranks, "ranks of tp*cp*dp");
  const bool as_dense = etp == plan.tp;
  const bool fits_uncut = as_dense && plan.tp > 1 && plan.sp && ranks % plan.ep == 0;
  return field_error("ep", "got {}, which does not divide {} ranks of {}; want a divisor ({}){}",
                     plan.ep, ranks / etp, as_dense ? "dp*cp" : "tp*cp*dp/etp",
                     small_divisors(ranks / etp), fits_uncut ? ", or etp=1" : "");
}

Error batch_does_not_divide(const ParallelPlan& plan, const PlanJob& job) {
  const Int batch = job.global_batch, pass = plan.dp * plan.micro_batch;
  const Int above = (batch / pass + 1) * pass;
  std::string or_micro_batch;
  if (batch % plan.dp == 0) {
    or_micro_batch = fmt::format(", or a micro_batch that divides {} ({})", batch / plan.dp,
                                 small_divisors(batch / plan.dp));
  }
  return field_error(
      "global_batch", "got {}; want a multiple of dp*micro_batch = {}*{} ({}){}", batch, plan.dp,
      plan.micro_batch,
      above > pass ? fmt::format("{} or {}", above - pass, above) : fmt::format("{}", above),
      or_micro_batch);
}

using enum PlanField;

constexpr PlanRule kRules[] = {
    count_up_to<kTp, &ParallelPlan::tp, kMaxGpus>(),
    count_up_to<kCp, &ParallelPlan::cp, kMaxGpus>(),
    count_up_to<kPp, &ParallelPlan::pp, kMaxPipeline>(),
    {{kVp, kPp},
     [](const ParallelPlan& plan, const PlanJob&) noexcept {
       return plan.vp >= 1 && plan.vp <= most_virtual_stages(plan.pp);
     },
     [](const ParallelPlan& plan, const PlanJob&) {
       return out_of_range("vp", plan.vp, 1, most_virtual_stages(plan.pp));
     }},
    count_up_to<kDp, &ParallelPlan::dp, kMaxGpus>(),
    count_up_to<kEp, &ParallelPlan::ep, kMaxGpus>(),
    {{kEtp},
     [](const ParallelPlan& plan, const PlanJob&) noexcept {
       return plan.etp >= 0 && plan.etp <= kMaxGpus;
     },
     [](const ParallelPlan& plan, const PlanJob&) {
       return out_of_range("etp", plan.etp, 1, kMaxGpus);
     }},
    count_up_to<kMicroBatch, &ParallelPlan::micro_batch, kMaxGpus>(),
    {{kZero},
     [](const ParallelPlan& plan, const PlanJob&) noexcept {
       return plan.zero >= 0 && plan.zero <= 3;
     },
     [](const ParallelPlan& plan, const PlanJob&) {
       return out_of_range("zero", plan.zero, 0, 3);
     }},
    {{},
     [](const ParallelPlan&, const PlanJob& job) noexcept {
       return job.seq_len >= 1 && job.seq_len <= kMaxSeqLen;
     },
     [](const ParallelPlan&, const PlanJob& job) {
       return out_of_range("seq_len", job.seq_len, 1, kMaxSeqLen);
     }},
    {{},
     [](const ParallelPlan&, const PlanJob& job) noexcept {
       return job.global_batch >= 1 && job.global_batch <= kMaxBatch;
     },
     [](const ParallelPlan&, const PlanJob& job) {
       return out_of_range("global_batch", job.global_batch, 1, kMaxBatch);
     }},

    // The cluster. The product is a double, because four counts of up to a million each may
    // overflow 64 bits. Rounding above 2^53 does no harm, because such a product is always wrong.
    {{kTp, kCp, kPp, kDp},
     [](const ParallelPlan& plan, const PlanJob& job) noexcept {
       return gpus_as_double(plan) == static_cast<double>(job.cluster.gpus());
     },
     [](const ParallelPlan& plan, const PlanJob& job) {
       return field_error("plan", "tp*cp*pp*dp = {:.0f} ({}*{}*{}*{}); want {}, the GPUs of {}",
                          gpus_as_double(plan), plan.tp, plan.cp, plan.pp, plan.dp,
                          job.cluster.gpus(), job.cluster.name);
     }},

    // Tensor and context parallelism.
    {{kTp},
     [](const ParallelPlan& plan, const PlanJob& job) noexcept {
       return job.model.heads % plan.tp == 0;
     },
     [](const ParallelPlan& plan, const PlanJob& job) {
       return does_not_divide("tp", plan.tp, job.model.heads, "attention heads");
     }},
    // If there are fewer KV heads than ranks, tp/kv_heads ranks hold the same head. Latent
    // attention has no KV heads to split.
    {{kTp},
     [](const ParallelPlan& plan, const PlanJob& job) noexcept {
       return job.model.mla.enabled || job.model.kv_heads % plan.tp == 0 ||
              plan.tp % job.model.kv_heads == 0;
     },
     [](const ParallelPlan& plan, const PlanJob& job) {
       return field_error("tp", "got {}; want a divisor or a multiple of the {} KV heads", plan.tp,
                          job.model.kv_heads);
     }},
    {{kTp},
     [](const ParallelPlan& plan, const PlanJob& job) noexcept {
       return job.model.hidden % plan.tp == 0;
     },
     [](const ParallelPlan& plan, const PlanJob& job) {
       return does_not_divide("tp", plan.tp, job.model.hidden, "hidden units");
     }},
    {{kTp},
     [](const ParallelPlan& plan, const PlanJob& job) noexcept {
       return !has_dense_layers(job.model) || job.model.ffn % plan.tp == 0;
     },
     [](const ParallelPlan& plan, const PlanJob& job) {
       return does_not_divide("tp", plan.tp, job.model.ffn, "MLP units");
     }},
    {{kTp},
     [](const ParallelPlan& plan, const PlanJob& job) noexcept {
       return shared_ffn(job.model) % plan.tp == 0;
     },
     [](const ParallelPlan& plan, const PlanJob& job) {
       return does_not_divide("tp", plan.tp, shared_ffn(job.model), "units of the shared experts");
     }},
    {{kSp, kTp},
     [](const ParallelPlan& plan, const PlanJob&) noexcept { return !plan.sp || plan.tp > 1; },
     [](const ParallelPlan&, const PlanJob&) {
       return field_error("sp", "got 1 with tp=1; want sp=0, or tp above 1");
     }},
    {{kCp},
     [](const ParallelPlan& plan, const PlanJob& job) noexcept {
       return plan.cp == 1 || job.seq_len % (2 * plan.cp) == 0;
     },
     [](const ParallelPlan& plan, const PlanJob& job) {
       return field_error("cp",
                          "got {} at sequence length {}; want 2*cp to divide it, because each rank "
                          "takes one early and one late piece",
                          plan.cp, job.seq_len);
     }},
    {{kSp, kCp, kTp},
     [](const ParallelPlan& plan, const PlanJob& job) noexcept {
       return !plan.sp || job.seq_len % (plan.cp * plan.tp) == 0;
     },
     [](const ParallelPlan& plan, const PlanJob& job) {
       return field_error("sp", "got 1 at sequence length {}; want a multiple of cp*tp = {}*{}",
                          job.seq_len, plan.cp, plan.tp);
     }},

    // Stages. Only an engine that cuts between layers needs a number of chunks that divides them.
    {{kPp, kVp, kStageLayers},
     [](const ParallelPlan& plan, const PlanJob& job) noexcept {
       return !plan.stage_layers.empty() || divides_layers(plan, job.model) ||
              (job.cut == StageCut::kWork && plan.pp * plan.vp <= job.model.layers);
     },
     stages_do_not_divide},
    {{kPp, kVp, kStageLayers},
     [](const ParallelPlan& plan, const PlanJob&) noexcept {
       return plan.stage_layers.empty() ||
              static_cast<Int>(plan.stage_layers.size()) == plan.pp * plan.vp;
     },
     [](const ParallelPlan& plan, const PlanJob&) {
       return field_error("stage_layers", "got {} entries; want pp*vp = {}*{} = {}",
                          plan.stage_layers.size(), plan.pp, plan.vp, plan.pp * plan.vp);
     }},
    {{kStageLayers},
     [](const ParallelPlan& plan, const PlanJob& job) noexcept {
       return odd_chunk(plan.stage_layers, job.model) == plan.stage_layers.size();
     },
     [](const ParallelPlan& plan, const PlanJob& job) {
       const std::size_t chunk = odd_chunk(plan.stage_layers, job.model);
       return field_error("stage_layers", "got {} layers in chunk {}; want {} to {}",
                          plan.stage_layers[chunk], chunk, fewest_layers(plan.stage_layers, chunk),
                          job.model.layers);
     }},
    {{kStageLayers},
     [](const ParallelPlan& plan, const PlanJob& job) noexcept {
       return plan.stage_layers.empty() || sum_of(plan.stage_layers) == job.model.layers;
     },
     [](const ParallelPlan& plan, const PlanJob& job) {
       return field_error("stage_layers", "got {} layers in all; want {}",
                          sum_of(plan.stage_layers), job.model.layers);
     }},

    // The batch and the schedule.
    {{kDp, kMicroBatch},
     [](const ParallelPlan& plan, const PlanJob& job) noexcept {
       return job.global_batch % (plan.dp * plan.micro_batch) == 0;
     },
     batch_does_not_divide},
    {{kVp, kPp},
     [](const ParallelPlan& plan, const PlanJob&) noexcept { return plan.vp == 1 || plan.pp > 1; },
     [](const ParallelPlan& plan, const PlanJob&) {
       return field_error("vp", "got {} with pp=1; want 1, or pp above 1", plan.vp);
     }},
    {{kSchedule, kVp},
     [](const ParallelPlan& plan, const PlanJob&) noexcept {
       return plan.vp == 1 || plan.schedule == ScheduleKind::kInterleaved;
     },
     [](const ParallelPlan& plan, const PlanJob&) {
       return field_error("schedule", "got {} with vp={}; want interleaved, or vp=1",
                          to_string(plan.schedule), plan.vp);
     }},
    {{kSchedule, kVp},
     [](const ParallelPlan& plan, const PlanJob&) noexcept {
       return plan.vp > 1 || plan.schedule != ScheduleKind::kInterleaved;
     },
     [](const ParallelPlan&, const PlanJob&) {
       return field_error("schedule", "got interleaved with vp=1; want vp of 2 or more, or 1f1b");
     }},
    {{kSchedule, kVp, kPp, kDp, kMicroBatch},
     [](const ParallelPlan& plan, const PlanJob& job) noexcept {
       return plan.schedule != ScheduleKind::kInterleaved ||
              plan.micro_batches(job.global_batch) % plan.pp == 0;
     },
     [](const ParallelPlan& plan, const PlanJob& job) {
       return field_error("vp", "got {} with {}; want a multiple of pp={} micro-batches, or vp=1",
                          plan.vp, counted(plan.micro_batches(job.global_batch), "micro-batch"),
                          plan.pp);
     }},
    {{kZero, kPp},
     [](const ParallelPlan& plan, const PlanJob& job) noexcept {
       const SmallSet stages =
           job.limits == nullptr ? kZeroWithPipelines : job.limits->zero_with_pp;
       return plan.pp == 1 || plan.zero < 2 || stages.has(plan.zero);
     },
     [](const ParallelPlan& plan, const PlanJob&) {
       return field_error("zero",
                          "got {} with pp={}; want 0 or 1, because gradients would be reduced "
                          "after every micro-batch",
                          plan.zero, plan.pp);
     }},

    // Experts.
    {{kEp},
     [](const ParallelPlan& plan, const PlanJob& job) noexcept {
       return plan.ep == 1 || job.model.is_moe();
     },
     [](const ParallelPlan& plan, const PlanJob& job) {
       return field_error("ep", "got {}; want 1, because {} has no experts", plan.ep,
                          job.model.name);
     }},
    {{kEtp, kTp},
     [](const ParallelPlan& plan, const PlanJob& job) noexcept {
       return plan.expert_tp() == plan.tp || job.model.is_moe();
     },
     [](const ParallelPlan& plan, const PlanJob& job) {
       return field_error("etp", "got {}; want tp ({}), or no etp, because {} has no experts",
                          plan.expert_tp(), plan.tp, job.model.name);
     }},
    {{kEtp, kTp},
     [](const ParallelPlan& plan, const PlanJob& job) noexcept {
       return !job.model.is_moe() || job.model.moe.expert_ffn % plan.expert_tp() == 0;
     },
     [](const ParallelPlan& plan, const PlanJob& job) {
       return does_not_divide(expert_cut(plan), plan.expert_tp(), job.model.moe.expert_ffn,
                              "units of an expert");
     }},
    {{kEtp, kTp, kSp},
     [](const ParallelPlan& plan, const PlanJob&) noexcept {
       return plan.expert_tp() == plan.tp || plan.tp == 1 || plan.sp;
     },
     [](const ParallelPlan& plan, const PlanJob&) {
       return field_error(
           "sp", "got 0 with tp={} and etp={}; want 1, because each rank sends its own tokens",
           plan.tp, plan.expert_tp());
     }},
    {{kEp, kTp, kSp},
     [](const ParallelPlan& plan, const PlanJob&) noexcept {
       return plan.ep == 1 || plan.tp == 1 || plan.sp;
     },
     [](const ParallelPlan& plan, const PlanJob&) {
       return field_error(
           "sp", "got 0 with tp={} and ep={}; want 1, because experts exchange split sequences",
           plan.tp, plan.ep);
     }},
    {{kEp},
     [](const ParallelPlan& plan, const PlanJob& job) noexcept {
       return plan.ep == 1 || job.model.moe.experts % plan.ep == 0;
     },
     [](const ParallelPlan& plan, const PlanJob& job) {
       return does_not_divide("ep", plan.ep, job.model.moe.experts, "experts");
     }},
    // Experts divide all ranks of a stage. If they are cut like the dense layers (etp = tp), that
    // leaves dp*cp.
    {{kEp, kEtp, kTp, kDp, kCp},
     [](const ParallelPlan& plan, const PlanJob&) noexcept {
       return expert_ranks(plan) % (plan.ep * plan.expert_tp()) == 0;
     },
     expert_ranks_do_not_divide},
};

}  // namespace

std::span<const PlanRule> plan_rules() { return kRules; }

std::vector<const PlanRule*> rules_of(PlanFields known, PlanFields added, bool limited) {
  std::vector<const PlanRule*> rules;
  for (const std::span<const PlanRule> part : {plan_rules(), engine_rules()}) {
    if (part.data() == engine_rules().data() && !limited) continue;
    for (const PlanRule& rule : part) {
      if ((known | added).has_all(rule.fields) && !known.has_all(rule.fields)) {
        rules.push_back(&rule);
      }
    }
  }
  return rules;
}

const PlanRule* broken_rule(PlanFields known, const ParallelPlan& plan,
                            const PlanJob& job) noexcept {
  for (const std::span<const PlanRule> part : {plan_rules(), engine_rules()}) {
    for (const PlanRule& rule : part) {
      if (known.has_all(rule.fields) && !rule.holds(plan, job)) return &rule;
    }
  }
  return nullptr;
}

}  // namespace copus
