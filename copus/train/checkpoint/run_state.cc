#include "copus/train/checkpoint/run_state.h"

#include <cmath>
#include <limits>

#include "copus/base/checksum.h"

namespace copus {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMostBatch = std::int64_t{1} << 40;
constexpr double kLargest = std::numeric_limits<double>::max();

Result<std::optional<std::uint64_t>> hash_or_nothing(FieldReader& fields, const char* key,
                                                     const std::string& where) {
  if (!fields.has(key)) return std::optional<std::uint64_t>();
  const std::string text = fields.text(key);
  COPUS_TRY_VOID(fields.finish());
  COPUS_TRY(const std::uint64_t hash, parse_checksum(text, where + ": " + key));
  return std::optional(hash);
}

}  // namespace

Json run_state_to_json(const RunState& state) {
  Json json = {{"data_hash", checksum_text(state.data_hash)}};
  if (state.fingerprint) json["fingerprint"] = checksum_text(*state.fingerprint);
  if (state.tokens) json["tokens"] = *state.tokens;
  if (state.base_batch) json["base_batch"] = *state.base_batch;
  if (state.lr) {
    json["lr"] = {{"peak", state.lr->peak},
                  {"floor", state.lr->floor},
                  {"warmup_samples", state.lr->warmup_samples},
                  {"decay_samples", state.lr->decay_samples}};
  }
  const bool known = state.loss && std::isfinite(*state.loss);
  json["loss"] = known ? Json(*state.loss) : Json(nullptr);
  if (!state.version.empty()) json["version"] = state.version;
  if (!state.controller.is_null()) json["controller"] = state.controller;
  return json;
}

Result<RunState> run_state_from_json(const Json& json, const std::string& where) {
  FieldReader fields(json, where);
  RunState state;
  COPUS_TRY(const std::optional<std::uint64_t> hash, hash_or_nothing(fields, "data_hash", where));
  state.data_hash = hash.value_or(0);
  COPUS_TRY(state.fingerprint, hash_or_nothing(fields, "fingerprint", where));
  if (fields.has("tokens")) state.tokens = fields.integer("tokens", 0, kMost);
  if (fields.has("base_batch")) state.base_batch = fields.integer("base_batch", 0, kMostBatch);
  if (fields.has("loss")) state.loss = fields.number("loss", -kLargest, kLargest);
  if (fields.has("version")) state.version = fields.text("version");
  if (fields.has("controller")) state.controller = fields.child("controller");
  if (fields.has("lr")) {
    FieldReader lr(fields.child("lr"), where + ": lr");
    state.lr = SavedSchedule{.peak = lr.number("peak", 0, kLargest),
                             .floor = lr.number("floor", 0, kLargest),
                             .warmup_samples = lr.integer("warmup_samples", 0, kMost),
                             .decay_samples = lr.integer("decay_samples", 0, kMost)};
    COPUS_TRY_VOID(lr.finish());
  }
  COPUS_TRY_VOID(fields.finish());
  return state;
}

}  // namespace copus
