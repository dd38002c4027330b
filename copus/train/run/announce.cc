#include "copus/train/run/announce.h"

#include "copus/base/text.h"

namespace copus {

void introduce(const RunLog& log, const RunOptions& options, const RunStart& start,
               const Dataset& data) {
  const TrainerOptions& t = start.trainer->options();
  log.say(fmt::format("{} ({} parameters), {}, {}, {} tokens of data", t.model.name,
                      human_count(static_cast<double>(t.model.total_params())),
                      counted(t.plan.gpus(), "rank"), short_name(t.plan),
                      human_count(static_cast<double>(data.tokens()))));
  if (t.model.dropout || t.model.attention_dropout > 0) {
    log.say("the model's config asks for dropout: it is not applied");
  }
  if (t.seq_len > t.model.max_positions) {
    log.say(fmt::format("sequences of {} are longer than the {} positions of the model's config",
                        t.seq_len, t.model.max_positions));
  }
  if (start.adaptation) {
    const bool full = options.adapt.controller.policy.adapt == Adapt::kFull;
    log.say(fmt::format(
        "adapting {}: {}, batches {} to {}", full ? "batch and layout" : "the batch",
        counted(static_cast<std::int64_t>(start.adaptation->candidates.size()), "configuration"),
        options.adapt.lowest_batch, options.adapt.highest_batch));
  }
}

Event begin_event(const RunOptions& options, const RunStart& start, const Dataset& data) {
  const TrainerOptions& t = start.trainer->options();
  if (start.resumed) {
    return RestartEvent{.step = start.step,
                        .samples = start.samples,
                        .from = start.from,
                        .plan = t.plan,
                        .global_batch = t.global_batch,
                        .ranks = t.plan.gpus(),
                        .why = options.checkpoint.why,
                        .skipped = start.skipped,
                        .options = options.changed};
  }
  return StartEvent{.model = t.model.name,
                    .parameters = t.model.total_params(),
                    .plan = t.plan,
                    .ranks = t.plan.gpus(),
                    .device = t.device.is_cuda() ? DeviceKind::kCuda : DeviceKind::kCpu,
                    .precision = t.precision(),
                    .seq_len = t.seq_len,
                    .global_batch = t.global_batch,
                    .data_tokens = data.tokens(),
                    .peak = options.peak,
                    .adapt = options.adapt.controller.policy.adapt,
                    .cluster = start.cluster};
}

}  // namespace copus
