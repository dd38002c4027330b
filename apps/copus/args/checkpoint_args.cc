#include "apps/copus/args/checkpoint_args.h"

#include "copus/base/text.h"
#include "copus/train/launch/environment.h"

namespace copus {

Values<std::int64_t> steps_or_off() {
  return single<std::int64_t>(
      "N|off",
      [](const std::string& text, const std::string& field) -> Result<std::int64_t> {
        if (text == "off") return 0;
        const Result<std::int64_t> steps = parse_integer(text, field, 1, kMany);
        if (steps) return *steps;
        return field_error(field, "got {}; want steps, 1 or more, or off", text);
      },
      [](std::int64_t steps) { return steps == 0 ? Json("off") : Json(steps); });
}

Result<CheckpointOptions> resolve_checkpoints(const CheckpointArgs& args) {
  if (*args.other_data && !*args.resume) {
    return field_error("--other-data", "got it without --resume; want --resume too");
  }
  CheckpointOptions out;
  out.every = args.every.value_or(0);
  out.save = !args.every.known() || out.every > 0;
  out.retention.keep = *args.keep;
  out.retention.keep_every = args.keep_every.value_or(0);
  out.resume = *args.resume;
  out.other_data = *args.other_data;
  out.version = COPUS_VERSION;
  out.why = environment_variable("COPUS_RESTART_WHY").value_or("--resume");
  return out;
}

}  // namespace copus
