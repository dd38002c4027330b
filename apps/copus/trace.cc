#include "apps/copus/trace.h"

#include <fmt/format.h>

#include <map>
#include <string>
#include <tuple>

#include "copus/base/text.h"
#include "copus/interop/chrome_trace.h"

namespace copus {
namespace {

// Perfetto can still load about this many slices.
constexpr std::int64_t kMaxSlices = 500'000;

const char* kind_name(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return "forward";
    case ActionKind::kBackward:
      return "backward";
    case ActionKind::kBackwardInput:
      return "backward input";
    case ActionKind::kBackwardWeight:
      return "backward weight";
  }
  return "";
}

bool is_backward(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kBackwardInput;
}

}  // namespace

Result<std::string> step_trace(const StepModel& model, const ParallelPlan& plan,
                               const StepEstimate& estimate) {
  const std::int64_t slices = plan.pp * plan.vp * plan.micro_batches(model.global_batch()) * 3;
  if (slices > kMaxSlices) {
    return field_error("--trace",
                       "got a step of {} actions; want at most {}: trace a smaller --global-batch",
                       slices, kMaxSlices);
  }
  const StepTimeline step = model.play(plan);
  Trace trace;
  trace.processes.push_back(
      {1, fmt::format("{} on {}: {}", model.model().name, model.cluster().name, short_name(plan))});

  using Key = std::tuple<bool, std::int32_t, std::int32_t>;  // backward, chunk, micro-batch
  std::map<Key, std::size_t> spans;
  const Seconds end = step.timeline.total;
  for (std::size_t r = 0; r < step.timeline.ranks.size(); ++r) {
    const auto thread = static_cast<std::int64_t>(r) + 1;
    trace.threads.push_back({1, thread, fmt::format("pipeline rank {}", r)});
    for (const TimedAction& timed : step.timeline.ranks[r]) {
      const Action& a = timed.action;
      TraceSpan span{1,
                     thread,
                     fmt::format("{} {}", kind_name(a.kind), a.micro_batch),
                     kind_name(a.kind),
                     timed.start,
                     timed.end - timed.start,
                     nullptr};
      span.args = {{"micro_batch", a.micro_batch}, {"chunk", a.chunk}};
      if (a.kind != ActionKind::kBackwardWeight)
        spans[{is_backward(a.kind), a.chunk, a.micro_batch}] = trace.spans.size();
      trace.spans.push_back(std::move(span));
    }
    // After the pipeline every rank has the same spans: the exposed part of the gradient reduction,
    // the optimizer, and the fixed cost.
    Seconds at = end;
    auto after = [&](const char* name, Seconds duration) {
      if (duration.v <= 0) return;
      trace.spans.push_back({1, thread, name, name, at, duration, nullptr});
      at += duration;
    };
    after("gradient reduction (exposed)", estimate.breakdown.dp);
    after("optimizer", estimate.breakdown.optimizer);
    after("fixed cost", estimate.breakdown.overhead);
  }
  for (const auto& [key, to] : spans) {
    const auto& [backward, chunk, micro_batch] = key;
    const auto from = spans.find({backward, chunk + (backward ? 1 : -1), micro_batch});
    if (from == spans.end() || trace.spans[from->second].thread == trace.spans[to].thread) continue;
    trace.flows.push_back({from->second, to, backward ? "gradient" : "activation"});
  }
  return chrome_trace(trace);
}

}  // namespace copus
