#include "copus/train/options/trainer_options.h"

#include <string>

namespace copus {
namespace {

Error untrainable(const char* field, const std::string& value, const char* want) {
  return field_error(field, "got {}; want {} (the engine does not train this yet)", value, want);
}

}  // namespace

Result<void> check_trainable(const TrainerOptions& o) {
  const ModelSpec& m = o.model;
  const ParallelPlan& p = o.plan;
  if (m.is_moe()) return untrainable("model", m.name + ", a mixture of experts", "a dense model");
  if (m.mla.enabled) return untrainable("model", m.name + ", with latent attention", "GQA or MHA");
  if (m.rope_scaling.kind == RopeScaling::kOther) {
    return untrainable("model: rope_scaling", m.rope_scaling.other, "none, linear or llama3");
  }
  if (m.sliding_window > 0 && m.sliding_window < o.seq_len) {
    return untrainable("model: sliding_window", std::to_string(m.sliding_window),
                       "a window as long as --seq-len");
  }
  if (p.cp > 1) return untrainable("cp", std::to_string(p.cp), "1");
  if (p.ep > 1) return untrainable("ep", std::to_string(p.ep), "1");
  if (p.zero > 1) return untrainable("zero", std::to_string(p.zero), "0 or 1");
  if (p.schedule == ScheduleKind::kZeroBubble) {
    return untrainable("schedule", std::string(to_string(p.schedule)),
                       "1f1b, interleaved or gpipe");
  }
  if ((p.tp - 1) * ((m.vocab + p.tp - 1) / p.tp) >= m.vocab) {
    return untrainable("tp", std::to_string(p.tp),
                       "so few that each rank has part of the vocabulary");
  }
  return {};
}

}  // namespace copus
