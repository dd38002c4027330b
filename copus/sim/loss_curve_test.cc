#include "copus/sim/loss_curve.h"

#include <gtest/gtest.h>

#include <cmath>

#include "copus/spec/hf_config.h"

namespace copus {
namespace {

TEST(LossCurve, LossIsBackWhereItsProgressWas) {
  for (const char* model : {"llama-3.2-3b", "llama-2-13b", "qwen-2.5-32b", "mixtral-8x7b"}) {
    const LossCurve curve = kaplan_curve(load_model(model).value(), 2048);
    double last = -1;
    for (int i = 0; curve.start_loss - 0.07 * i > curve.floor + 0.01; ++i) {
      const double loss = curve.start_loss - 0.07 * i;
      const double progress = curve.progress_at(loss);
      EXPECT_NEAR(curve.loss_at(progress), loss, 1e-9) << model;
      EXPECT_GT(progress, last) << model << " at loss " << loss;
      last = progress;
    }
  }
}

TEST(LossCurve, BeginsWhereEveryTokenIsAsLikely) {
  const ModelSpec model = load_model("llama-2-7b").value();
  const LossCurve curve = kaplan_curve(model, 2048);
  EXPECT_DOUBLE_EQ(curve.loss_at(0), std::log(static_cast<double>(model.vocab)));
  EXPECT_EQ(curve.progress_at(curve.start_loss), 0);
}

// Kaplan et al. 2020: 2e8 tokens * L^(-1/0.21).
TEST(LossCurve, CriticalBatchIsKaplans) {
  const ModelSpec model = load_model("llama-3.2-3b").value();
  const LossCurve tokens = kaplan_curve(model, 1), sequences = kaplan_curve(model, 2048);
  struct Published {
    double loss, tokens, sequences;
  };
  for (const Published& at :
       {Published{6, 40e3, 19}, Published{4, 270e3, 133}, Published{3, 1.07e6, 522}}) {
    EXPECT_NEAR(tokens.critical_batch(at.loss) / at.tokens, 1, 0.02) << at.loss;
    EXPECT_NEAR(sequences.critical_batch(at.loss), at.sequences, 0.51) << at.loss;
  }
}

// L = (8.8e13/N)^0.076 + (2.1e3/S)^0.76: at S = 2100 the loss is one nat above the floor.
TEST(LossCurve, FloorAndScaleAreKaplans) {
  const ModelSpec model = load_model("llama-2-7b").value();
  const LossCurve curve = kaplan_curve(model, 2048);
  const auto parameters =
      static_cast<double>(model.total_params() - model.embedding_params() - model.head_params());
  EXPECT_NEAR(curve.floor, std::pow(8.8e13 / parameters, 0.076), 1e-12);
  const double before = 2100 * std::pow(curve.start_loss - curve.floor, -1 / 0.76);
  EXPECT_NEAR(curve.loss_at(2100 - before), curve.floor + 1, 1e-12);
}

TEST(LossCurve, ALargerModelEndsLower) {
  const double small = kaplan_curve(load_model("llama-3.2-3b").value(), 2048).floor;
  const double large = kaplan_curve(load_model("qwen-2.5-32b").value(), 2048).floor;
  EXPECT_LT(large, small);
}

// McCandlish et al. 2018: (S/Smin - 1)(E/Emin - 1) = 1.
TEST(ProgressLaw, StepsAndSamplesLieOnTheirHyperbola) {
  const ProgressLaw law;
  const double critical = 85;
  for (const double batch : {1.0, 16.0, 85.0, 512.0, 4096.0}) {
    const double steps = 1 / law.step(batch, critical);  // for a progress of 1
    const double samples = steps * batch;
    EXPECT_NEAR((steps - 1) * (samples / critical - 1), 1, 1e-9) << batch;
  }
  EXPECT_DOUBLE_EQ(law.step(critical, critical), 0.5);
}

TEST(ProgressLaw, LrAwareGainsByTheRootOfTheBatch) {
  const ProgressLaw plain, aware{0.5, 16};
  for (const double batch : {16.0, 64.0, 256.0}) {
    EXPECT_NEAR(aware.step(batch, 85) / plain.step(batch, 85), std::sqrt(batch / 16), 1e-12);
  }
}

}  // namespace
}  // namespace copus
