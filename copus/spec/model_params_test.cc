// Compares parameter counts with published counts, which must agree exactly, and checks relations
// between the parts.
#include <gtest/gtest.h>

#include <limits>

#include "copus/spec/catalog.h"
#include "copus/spec/hf_config.h"
#include "copus/spec/model_spec.h"

namespace copus {
namespace {

ModelSpec model_of(const std::string& name) {
  Result<ModelSpec> model = load_model(name);
  EXPECT_TRUE(model) << model.error().message;
  return model ? *model : ModelSpec();
}

struct Published {
  const char* model;
  std::int64_t total;
};

// Without this, gtest would print the parameter as bytes of a pointer.
void PrintTo(const Published& published, std::ostream* os) { *os << published.model; }

class PublishedCount : public testing::TestWithParam<Published> {};

TEST_P(PublishedCount, EqualsTheCheckpoint) {
  EXPECT_EQ(model_of(GetParam().model).total_params(), GetParam().total);
}

// The number of elements in each model's published checkpoint. For deepseek-v3 it is the main
// model, with the bias per expert of its 58 routers (14,848 in all) and without the multi-token
// prediction module.
INSTANTIATE_TEST_SUITE_P(
    Models, PublishedCount,
    testing::Values(
        Published{"gpt2-124m", 124'439'808}, Published{"gpt2-medium", 354'823'168},
        Published{"gpt2-large", 774'030'080}, Published{"gpt2-xl", 1'557'611'200},
        Published{"llama-2-7b", 6'738'415'616}, Published{"llama-2-13b", 13'015'864'320},
        Published{"llama-2-70b", 68'976'648'192}, Published{"llama-3-8b", 8'030'261'248},
        Published{"llama-3-70b", 70'553'706'496}, Published{"llama-3.1-8b", 8'030'261'248},
        Published{"llama-3.1-70b", 70'553'706'496}, Published{"llama-3.1-405b", 405'853'388'800},
        Published{"llama-3.2-1b", 1'235'814'400}, Published{"llama-3.2-3b", 3'212'749'824},
        Published{"mistral-7b", 7'241'732'096}, Published{"qwen-2.5-0.5b", 494'032'768},
        Published{"qwen-2.5-7b", 7'615'616'512}, Published{"qwen-2.5-32b", 32'763'876'352},
        Published{"qwen-2.5-72b", 72'706'203'648}, Published{"qwen3-8b", 8'190'735'360},
        Published{"qwen3-32b", 32'762'123'264}, Published{"mixtral-8x7b", 46'702'792'704},
        Published{"mixtral-8x22b", 140'620'634'112}, Published{"qwen3-30b-a3b", 30'532'122'624},
        Published{"qwen3-235b-a22b", 235'093'634'560}, Published{"deepseek-v3", 671'026'419'200}),
    [](const testing::TestParamInfo<Published>& param) {
      std::string name = param.param.model;
      for (char& c : name) {
        if (c == '-' || c == '.') c = '_';
      }
      return name;
    });

TEST(MoeLayers, CountedInOneStepAreThoseCountedOneByOne) {
  ModelSpec model = model_of("deepseek-v3");
  for (model.layers = 1; model.layers <= 12; ++model.layers) {
    for (model.moe.first_dense_layers = 0; model.moe.first_dense_layers < model.layers;
         ++model.moe.first_dense_layers) {
      for (model.moe.layer_step = 1; model.moe.layer_step <= model.layers; ++model.moe.layer_step) {
        for (model.moe.layer_offset = 0; model.moe.layer_offset < model.moe.layer_step;
             ++model.moe.layer_offset) {
          std::int64_t counted = 0;
          for (std::int64_t layer = 0; layer <= model.layers; ++layer) {
            EXPECT_EQ(model.moe_layers_before(layer), counted);
            if (layer < model.layers && model.layer_is_moe(layer)) ++counted;
          }
          EXPECT_EQ(model.validate().has_value(), counted > 0);
        }
        model.moe.layer_offset = 0;
      }
    }
    model.moe.first_dense_layers = 0;
    model.moe.layer_step = 1;
  }
}

TEST(ParamCount, Gpt3ComesToItsPublished175B) {
  // The paper rounds (arXiv:2005.14165, table 2.1: "175.0B").
  EXPECT_NEAR(static_cast<double>(model_of("gpt3-175b").total_params()), 175.0e9, 0.5e9);
}

TEST(ParamCount, Llama4MaverickComesToItsPublished400B) {
  // Its model card says 400B, and 17B active.
  EXPECT_NEAR(static_cast<double>(model_of("llama-4-maverick").total_params()), 400e9, 1e9);
}

TEST(ParamCount, TinyHasAboutAMillion) {
  EXPECT_NEAR(static_cast<double>(model_of("tiny").total_params()), 1e6, 2e4);
}

TEST(ActiveParams, MatchTheModelCards) {
  EXPECT_NEAR(static_cast<double>(model_of("mixtral-8x7b").active_params()), 12.9e9, 0.05e9);
  EXPECT_NEAR(static_cast<double>(model_of("mixtral-8x22b").active_params()), 39e9, 0.5e9);
  EXPECT_NEAR(static_cast<double>(model_of("qwen3-235b-a22b").active_params()), 22e9, 0.5e9);
  EXPECT_NEAR(static_cast<double>(model_of("qwen3-30b-a3b").active_params()), 3.3e9, 0.1e9);
  EXPECT_NEAR(static_cast<double>(model_of("llama-4-maverick").active_params()), 17e9, 0.5e9);
  // The report says 37B; it includes the embedding in some places only (36.6B without it).
  EXPECT_NEAR(static_cast<double>(model_of("deepseek-v3").active_params()), 37e9, 0.6e9);
}

TEST(ActiveParams, AreAllOfADenseModel) {
  const ModelSpec model = model_of("llama-3-8b");
  EXPECT_EQ(model.active_params(), model.total_params());
}

TEST(ParamCount, PartsAddUpToTheTotalForEveryCatalogModel) {
  for (const std::string& name : catalog_model_names()) {
    const ModelSpec model = model_of(name);
    std::int64_t sum = model.embedding_params() + model.norm_params() + model.head_params();
    for (std::int64_t layer = 0; layer < model.layers; ++layer) {
      const std::int64_t mlp = model.layer_is_moe(layer)
                                   ? model.moe.experts * model.expert_params() +
                                         model.shared_expert_params() + model.router_params()
                                   : model.dense_mlp_params();
      EXPECT_EQ(model.layer_params(layer), 2 * model.norm_params() + model.attention_params() + mlp)
          << name;
      sum += model.layer_params(layer);
    }
    EXPECT_EQ(model.total_params(), sum) << name;
    EXPECT_LE(model.active_params(), model.total_params()) << name;
  }
}

TEST(ParamCount, TyingSavesExactlyTheHead) {
  ModelSpec model = model_of("llama-3.2-1b");
  ASSERT_TRUE(model.tied_embeddings);
  const std::int64_t tied = model.total_params();
  EXPECT_EQ(model.head_params(), 0);
  model.tied_embeddings = false;
  EXPECT_EQ(model.total_params() - tied, model.vocab * model.hidden);
}

TEST(ForwardFlops, AreTwicePerWeightPlusAttentionByHand) {
  // One layer: q 8*2*4, k and v 8*1*4 each, o 2*4*8, three matrices 8*16, the head 8*10; no
  // embedding look-up.
  ModelSpec model;
  model.layers = 1;
  model.hidden = 8;
  model.ffn = 16;
  model.heads = 2;
  model.kv_heads = 1;
  model.head_dim = 4;
  model.vocab = 10;
  const double weights = 64 + 32 + 32 + 64 + 3 * 8 * 16 + 8 * 10;
  // Scores and values, 2 operations each over 2 heads of 4, for half of 100 positions.
  const double attention = 2 * 2 * (2 * 4) * 100 / 2.0;
  EXPECT_DOUBLE_EQ(model.forward_flops_per_token(100), 2 * weights + attention);

  model.tied_embeddings = true;  // the product with the vocabulary still counts
  EXPECT_DOUBLE_EQ(model.forward_flops_per_token(100), 2 * weights + attention);
}

TEST(ForwardFlops, OfShortSequencesApproachTwoPerActiveParameterOutsideTheEmbedding) {
  for (const std::string& name : catalog_model_names()) {
    const ModelSpec model = model_of(name);
    const std::int64_t looked_up = model.tied_embeddings ? 0 : model.vocab * model.hidden;
    const double expected = 2 * static_cast<double>(model.active_params() - looked_up);
    // Norms, biases and learned positions multiply nothing: less than 2% of any of these models.
    EXPECT_NEAR(model.forward_flops_per_token(1) / expected, 1, 0.02) << name;
  }
}

TEST(ForwardFlops, OfAWindowCountWhatItShows) {
  ModelSpec model = model_of("mistral-7b");
  model.sliding_window = 0;
  const double all = model.forward_flops_per_token(1000);
  // Count by hand: token i sees about min(i + 0.5, 100) positions.
  double seen = 0;
  for (int i = 0; i < 1000; ++i) seen += std::min(i + 0.5, 100.0);
  model.sliding_window = 100;
  EXPECT_NEAR(model.mean_context(1000), seen / 1000, 0.01);
  EXPECT_LT(model.forward_flops_per_token(1000), all);
  model.sliding_window = 1000;
  EXPECT_EQ(model.forward_flops_per_token(1000), all);
}

TEST(ForwardFlops, GrowLinearlyWithTheSequence) {
  const ModelSpec model = model_of("deepseek-v3");
  const double step = model.forward_flops_per_token(2048) - model.forward_flops_per_token(1024);
  EXPECT_NEAR(model.forward_flops_per_token(5120) - model.forward_flops_per_token(4096), step,
              step * 1e-9);
  // 61 layers of 128 heads: 192 wide for scores, 128 for values.
  EXPECT_NEAR(step, 61.0 * 128 * (192 + 128) * 1024, 1e6);
}

using Change = void (*)(ModelSpec&);

std::string refusal(const std::string& name, Change change) {
  ModelSpec model = model_of(name);
  change(model);
  const Result<void> valid = model.validate();
  return valid ? "" : valid.error().message;
}

TEST(ValidateModel, AcceptsTheCatalogAndADefaultSpec) {
  EXPECT_TRUE(ModelSpec().validate());
  for (const std::string& name : catalog_model_names())
    EXPECT_TRUE(model_of(name).validate()) << name;
}

TEST(ValidateModel, NamesFieldValueAndWhatWouldBeRight) {
  EXPECT_EQ(refusal("tiny", [](ModelSpec& m) { m.layers = 0; }),
            "layers: got 0; want an integer from 1 to 10000");
  EXPECT_EQ(refusal("tiny", [](ModelSpec& m) { m.kv_heads = 3; }),
            "kv_heads: got 3; want a divisor of heads (4)");
  EXPECT_EQ(refusal("mixtral-8x7b", [](ModelSpec& m) { m.moe.experts_per_token = 9; }),
            "moe.experts_per_token: got 9; want an integer from 1 to 8");
  EXPECT_EQ(refusal("deepseek-v3", [](ModelSpec& m) { m.moe.first_dense_layers = 61; }),
            "moe.first_dense_layers: got 61; want an integer from 0 to 60");
  EXPECT_EQ(refusal("deepseek-v3", [](ModelSpec& m) { m.mla.kv_lora_rank = 0; }),
            "mla.kv_lora_rank: got 0; want an integer from 1 to 1000000");
}

TEST(ValidateModel, RefusesEveryFieldBelowAndAboveItsRange) {
  const auto set = [](std::int64_t ModelSpec::*field, std::int64_t value) {
    ModelSpec model = model_of("tiny");
    model.*field = value;
    return model.validate().has_value();
  };
  for (const auto field :
       {&ModelSpec::layers, &ModelSpec::hidden, &ModelSpec::ffn, &ModelSpec::heads,
        &ModelSpec::kv_heads, &ModelSpec::head_dim, &ModelSpec::vocab, &ModelSpec::max_positions}) {
    EXPECT_FALSE(set(field, 0));
    EXPECT_FALSE(set(field, -1));
    EXPECT_FALSE(set(field, std::numeric_limits<std::int64_t>::min()));
    EXPECT_FALSE(set(field, std::numeric_limits<std::int64_t>::max()));
  }
}

TEST(ValidateModel, RefusesATotalThatNoCountCouldHold) {
  const std::string message = refusal("deepseek-v3", [](ModelSpec& m) {
    m.layers = 10'000;
    m.hidden = 1'000'000;
    m.moe.experts = 100'000;
    m.moe.expert_ffn = 10'000'000;
  });
  EXPECT_NE(message.find("total parameters: got"), std::string::npos) << message;
}

}  // namespace
}  // namespace copus
