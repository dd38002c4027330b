// The deciders of a live run. Rank 0's asks the controller and tells the other ranks, whose
// deciders repeat its decisions.
#pragma once

#include "copus/goodput/controller.h"
#include "copus/train/comm/comm.h"
#include "copus/train/options/layout_options.h"

namespace copus {

// The decider of rank 0.
class LeadingDecider final : public Decider {
 public:
  // REQUIRES: `controller` and `world` outlive this.
  LeadingDecider(Decider& controller, const Comm& world, const RankDevice& device)
      : controller_(controller), world_(world), device_(device) {}

  void observe(const StepReport& step) override { controller_.observe(step); }
  bool due(std::int64_t step) const override { return controller_.due(step); }
  Decision consider(std::optional<Seconds> remaining) override;
  void moved(const Decision& decision, const MoveReport& report) override {
    controller_.moved(decision, report);
  }
  void decide_for_later(std::optional<Seconds> remaining) override {
    controller_.decide_for_later(remaining);
  }

 private:
  Decider& controller_;
  const Comm& world_;
  RankDevice device_;
};

// The decider of the other ranks. Its decisions only say whether to move, and where to.
class FollowingDecider final : public Decider {
 public:
  // `options`: those of rank 0's controller. REQUIRES: `world` outlives this.
  FollowingDecider(const ControllerOptions& options, const Comm& world, const RankDevice& device)
      : options_(options), world_(world), device_(device) {}

  void observe(const StepReport& /*step*/) override {}
  bool due(std::int64_t step) const override { return Controller::due(options_, step); }
  Decision consider(std::optional<Seconds> remaining) override;
  void moved(const Decision& /*decision*/, const MoveReport& /*report*/) override {}
  void decide_for_later(std::optional<Seconds> /*remaining*/) override {}

 private:
  ControllerOptions options_;
  const Comm& world_;
  RankDevice device_;
};

}  // namespace copus
