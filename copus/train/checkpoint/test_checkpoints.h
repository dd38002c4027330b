// For tests: the whole state of a small model, and checkpoints of it at any layout.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "copus/base/test_folder.h"
#include "copus/spec/hf_config.h"
#include "copus/train/checkpoint/folder.h"
#include "copus/train/checkpoint/reader.h"
#include "copus/train/checkpoint/saver.h"
#include "copus/train/state/test_layouts.h"

namespace copus {

// A model that a manifest can name: one of Hugging Face's families.
inline ModelSpec tiny_model() {
  Result<ModelSpec> model = parse_hf_config(
      R"({"model_type":"llama","_name_or_path":"tiny","hidden_size":8,"intermediate_size":16,
          "num_attention_heads":4,"num_key_value_heads":2,"num_hidden_layers":4,"vocab_size":23,
          "max_position_embeddings":8})",
      "tiny");
  EXPECT_TRUE(model.has_value()) << model.error().message;
  return *model;
}

inline Manifest manifest_of(const ModelSpec& model, const ParallelPlan& plan, std::int64_t step) {
  Manifest manifest;
  manifest.model = model;
  manifest.plan = plan;
  manifest.step = step;
  manifest.samples = 8 * step;
  manifest.updates = step;
  manifest.global_batch = 8;
  manifest.seq_len = 8;
  manifest.seed = 5;
  manifest.run = {{"data_hash", "0123456789abcdef"}, {"noise", {{"weight", 0.1}}}};
  return manifest;
}

// A value that no other element has.
inline float value_of(StateArray kind, std::size_t tensor, std::int64_t element) {
  return static_cast<float>(static_cast<double>(element) + 1e4 * static_cast<double>(tensor) +
                            1e6 * static_cast<double>(static_cast<int>(kind)));
}

// What a rank would write, of a state whose elements are value_of().
inline SaveJob job_of(const Manifest& manifest, int rank, std::vector<float>& data,
                      std::int64_t bucket_elements = 300) {
  SaveJob job;
  job.manifest = manifest;
  const std::vector<TensorSpec> tensors = model_tensors(manifest.model);
  for (const StateArray kind : kStateArrays) {
    for (const ShardRun& run : shard_runs(manifest.model, manifest.plan, bucket_elements, rank)) {
      const TensorSpec& tensor = tensors[run.tensor];
      job.parts.push_back({kind, tensor.name, run.stripe});
      const std::int64_t width = tensor.shape.size() > 1 ? tensor.shape[1] : 1;
      for (std::int64_t k = run.stripe.begin; k < run.stripe.end; ++k) {
        const std::int64_t row = k / run.stripe.columns;
        const std::int64_t column = run.stripe.first_column + k % run.stripe.columns;
        data.push_back(value_of(kind, run.tensor, row * width + column));
      }
    }
  }
  job.data = data;
  return job;
}

// Saves by all ranks of the plan at once; the error of rank 0, or "".
inline std::string save_checkpoint(const std::string& run_dir, const Manifest& manifest,
                                   const Retention& retention = {}) {
  const auto ranks = static_cast<std::size_t>(manifest.plan.gpus());
  std::vector<std::vector<float>> data(ranks);
  std::vector<std::unique_ptr<Saver>> savers;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    SaverOptions options;
    options.run_dir = run_dir;
    options.rank = static_cast<int>(rank);
    options.ranks = static_cast<int>(ranks);
    options.wait = Seconds(20);
    options.retention = retention;
    savers.push_back(std::make_unique<Saver>(options));
    savers.back()->start(job_of(manifest, static_cast<int>(rank), data[rank]));
  }
  std::string error;
  for (std::size_t rank = ranks; rank-- > 0;) error = savers[rank]->wait()->error;
  return error;
}

// Whether all state that the reader gives is value_of(), read in stripes of any kind.
inline std::string wrong_state(const CheckpointReader& reader) {
  const std::vector<TensorSpec> tensors = model_tensors(reader.manifest().model);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::int64_t size = element_count(tensors[i].shape);
    const std::int64_t width = tensors[i].shape.size() > 1 ? tensors[i].shape[1] : 1;
    const std::int64_t rows = size / width;
    for (const StateArray kind : kStateArrays) {
      for (std::int64_t columns = 1; columns <= width;
           columns = columns < width ? std::min(width, 3 * columns) : width + 1) {
        for (const std::int64_t cut : {std::int64_t{0}, rows * columns / 3}) {
          const Stripe stripe{(width - columns) / 2, columns, cut, rows * columns - cut / 2};
          std::vector<float> out(static_cast<std::size_t>(stripe.size()));
          const Result<void> read = reader.read(kind, tensors[i].name, stripe, out);
          if (!read) return read.error().message;
          for (std::int64_t k = stripe.begin; k < stripe.end; ++k) {
            const std::int64_t element = k / columns * width + stripe.first_column + k % columns;
            if (out[static_cast<std::size_t>(k - stripe.begin)] != value_of(kind, i, element)) {
              return fmt::format("{} of {}: element {} is wrong", to_string(kind), tensors[i].name,
                                 element);
            }
          }
        }
      }
    }
  }
  return "";
}

}  // namespace copus
