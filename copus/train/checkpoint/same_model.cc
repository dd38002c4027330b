#include "copus/train/checkpoint/same_model.h"

#include <algorithm>
#include <string>
#include <vector>

#include "copus/spec/hf_config_writer.h"
#include "copus/train/state/parameters.h"

namespace copus {

Result<void> check_same_model(const ModelSpec& wanted, const CheckpointReader& reader) {
  const std::vector<TensorSpec> ours = model_tensors(wanted);
  const std::vector<TensorSpec> theirs = model_tensors(reader.manifest().model);
  for (std::size_t i = 0; i < std::max(ours.size(), theirs.size()); ++i) {
    const auto text = [&](const std::vector<TensorSpec>& tensors) {
      if (i >= tensors.size()) return std::string("nothing");
      std::string shape;
      for (const std::int64_t n : tensors[i].shape)
        shape += fmt::format("{}{}", shape.empty() ? "" : "x", n);
      return fmt::format("{} of {}", tensors[i].name, shape);
    };
    if (text(ours) == text(theirs)) continue;
    return field_error("--model", "got one with {}; want {}, as {} has it", text(ours),
                       text(theirs), reader.folder());
  }
  // What has no tensor of its own changes the weights' meaning all the same, but for these.
  ModelSpec model = wanted;
  ModelSpec saved = reader.manifest().model;
  model.name = saved.name;
  model.max_positions = saved.max_positions;  // learned ones have a tensor
  model.init_std = saved.init_std;
  model.dropout = saved.dropout;
  model.attention_dropout = saved.attention_dropout;
  // The family only names what the other fields say. A family's config lacks the fields of other
  // families, so the models are compared as each of the two families writes them.
  for (const std::string& family : {saved.family, wanted.family}) {
    model.family = saved.family = family;
    const Json mine = hf_config_json(model), its = hf_config_json(saved);
    for (const auto& [key, value] : mine.items()) {
      if (value == its.at(key)) continue;
      return field_error("--model", "got {} = {}; want {}, as {} has it", key, value.dump(),
                         its.at(key).dump(), reader.folder());
    }
  }
  return {};
}

}  // namespace copus
