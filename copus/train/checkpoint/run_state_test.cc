#include "copus/train/checkpoint/run_state.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace copus {
namespace {

RunState random_state(std::mt19937_64& random) {
  const auto coin = [&] { return random() % 2 == 0; };
  const auto count = [&] { return static_cast<std::int64_t>(random() >> 25U); };
  RunState state;
  state.data_hash = random();
  if (coin()) state.fingerprint = random();
  if (coin()) state.tokens = count();
  if (coin()) state.base_batch = count();
  if (coin()) state.lr = SavedSchedule{1e-3, 1e-4, count(), count()};
  if (coin()) state.loss = std::normal_distribution<double>(3, 2)(random);
  if (coin()) state.version = "1.2.3";
  if (coin()) state.controller = {{"noise", {{"weight", 0.5}}}};
  return state;
}

TEST(RunState, ReadsBackWhatItPrints) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 500; ++i) {
    const RunState state = random_state(random);
    const Result<RunState> back = run_state_from_json(run_state_to_json(state), "manifest: run");
    ASSERT_TRUE(back.has_value()) << back.error().message;
    EXPECT_EQ(*back, state);
  }
}

TEST(RunState, ALossThatIsNoNumberIsNone) {
  RunState state;
  state.loss = NAN;
  EXPECT_EQ(run_state_to_json(state)["loss"], nullptr);
  EXPECT_EQ(run_state_from_json(run_state_to_json(state), "manifest: run")->loss, std::nullopt);
}

TEST(RunState, OfAnImportHasNothing) {
  const Result<RunState> state = run_state_from_json({{"imported_from", "llama"}}, "manifest: run");
  ASSERT_TRUE(state.has_value()) << state.error().message;
  EXPECT_EQ(*state, RunState());
}

TEST(RunState, ErrorsNameTheField) {
  const auto error = [](const Json& json) {
    return run_state_from_json(json, "manifest: run").error().message;
  };
  EXPECT_EQ(error({{"tokens", -1}}).rfind("manifest: run: tokens: got -1", 0), 0U)
      << error({{"tokens", -1}});
  EXPECT_EQ(error({{"data_hash", "xyz"}}).rfind("manifest: run: data_hash: ", 0), 0U)
      << error({{"data_hash", "xyz"}});
  EXPECT_NE(error({{"lr", {{"peak", 1}}}}).find("lr: floor"), std::string::npos)
      << error({{"lr", {{"peak", 1}}}});
}

}  // namespace
}  // namespace copus
