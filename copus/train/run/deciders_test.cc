#include "copus/train/run/deciders.h"

#include <gtest/gtest.h>

#include <mutex>

#include "copus/train/comm/rank_threads.h"

namespace copus {
namespace {

// Returns the given decisions, one after the other.
class Scripted final : public Decider {
 public:
  explicit Scripted(std::vector<Decision> decisions) : decisions_(std::move(decisions)) {}
  void observe(const StepReport& /*step*/) override { ++observed; }
  bool due(std::int64_t step) const override { return step % 3 == 0; }
  Decision consider(std::optional<Seconds> /*remaining*/) override {
    return decisions_.at(next_++);
  }
  void moved(const Decision& /*decision*/, const MoveReport& report) override {
    reports.push_back(report.error);
  }
  void decide_for_later(std::optional<Seconds> /*remaining*/) override { ++later; }

  int observed = 0, later = 0;
  std::vector<std::string> reports;

 private:
  std::vector<Decision> decisions_;
  std::size_t next_ = 0;
};

Decision to(const std::string& plan, std::int64_t batch) {
  Decision decision;
  decision.move = true;
  decision.to = {parse_plan_text(plan, "plan").value().plan, batch};
  decision.why = "because";
  return decision;
}

// The other ranks do what rank 0 decides, for moves to several kinds of layouts and for no move.
TEST(Deciders, AllRanksGoWhereRank0Goes) {
  const std::vector<Decision> script = {
      to("dp4.tp1.pp1.mb2", 64),
      Decision(),
      to("dp1.tp2.pp2.mb1.vp2.z1.sp.rc-full.split3-2-2-1", 128),
      Decision(),
      to("dp2.tp2.pp1.mb4.z1", 96),
  };
  std::mutex mutex;
  int heard = 0;
  run_ranks(4, [&](int rank, GroupCache& groups) {
    const Comm& world = *groups.group("world", {0, 1, 2, 3}).value();
    Scripted controller(script);
    LeadingDecider leading(controller, world, {});
    FollowingDecider following({}, world, {});
    Decider& decider = rank == 0 ? static_cast<Decider&>(leading) : following;
    for (const Decision& expected : script) {
      const Decision decision = decider.consider(std::nullopt);
      EXPECT_EQ(decision.move, expected.move) << "rank " << rank;
      if (expected.move) {
        EXPECT_EQ(decision.to, expected.to) << "rank " << rank;
      }
      const std::lock_guard<std::mutex> lock(mutex);
      ++heard;
    }
  });
  EXPECT_EQ(heard, 4 * 5);
}

TEST(Deciders, Rank0sControllerIsToldOfEverything) {
  run_ranks(1, [](int, GroupCache& groups) {
    Scripted controller({to("dp1.tp1.pp1.mb1", 8)});
    LeadingDecider decider(controller, *groups.group("world", {0}).value(), {});
    decider.observe({});
    decider.observe({});
    const Decision decision = decider.consider(std::nullopt);
    decider.moved(decision, {.done = false, .error = "no room", .pause = Seconds()});
    decider.decide_for_later(std::nullopt);
    EXPECT_EQ(controller.observed, 2);
    EXPECT_EQ(controller.reports, std::vector<std::string>{"no room"});
    EXPECT_EQ(controller.later, 1);
    EXPECT_TRUE(decider.due(3));
    EXPECT_FALSE(decider.due(4));
  });
}

// A rank that expects a decision when rank 0 makes none would wait until its time limit.
TEST(Deciders, FollowersKnowWhenADecisionIsDue) {
  run_ranks(1, [](int, GroupCache& groups) {
    const Comm& world = *groups.group("world", {0}).value();
    for (const Adapt adapt : {Adapt::kOff, Adapt::kBatch, Adapt::kFull}) {
      ControllerOptions options;
      options.policy.adapt = adapt;
      options.decide_every = 7;
      const Candidate start{{ParallelPlan(), 8}, {}};
      Controller controller(options, start, {}, nullptr);
      const LeadingDecider leading(controller, world, {});
      const FollowingDecider following(options, world, {});
      for (std::int64_t step = 1; step < 50; ++step) {
        EXPECT_EQ(leading.due(step), following.due(step));
        EXPECT_EQ(leading.due(step), adapt != Adapt::kOff && step % 7 == 0);
      }
    }
  });
}

}  // namespace
}  // namespace copus
