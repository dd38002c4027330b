#include "copus/goodput/drive.h"

namespace copus {
namespace {

Result<void> decide_and_move(Job& job, Decider& decider) {
  const Decision decision = decider.consider(job.remaining());
  COPUS_TRY_VOID(job.decided(decision));
  if (!decision.move) return {};
  COPUS_TRY(const MoveReport report, job.move(decision.to));
  decider.moved(decision, report);
  return {};
}

}  // namespace

Result<void> drive(Job& job, Decider& decider) {
  while (!job.done()) {
    COPUS_TRY(const StepReport step, job.step());
    decider.observe(step);
    const bool due = decider.due(step.step);
    if (due && job.stopping()) decider.decide_for_later(job.remaining());
    COPUS_TRY_VOID(job.observed(step));
    if (due && !job.done()) COPUS_TRY_VOID(decide_and_move(job, decider));
    COPUS_TRY_VOID(job.settled());
  }
  return {};
}

}  // namespace copus
