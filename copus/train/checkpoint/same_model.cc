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
  // What has no tensor of its own changes the weights' meaning all the same.
  const Json mine = hf_config_json(wanted), its = hf_config_json(reader.manifest().model);
  for (const char* key : {"rope_theta", "rope_scaling", "rms_norm_eps", "layer_norm_epsilon",
                          "hidden_act", "activation_function", "sliding_window"}) {
    const Json a = mine.value(key, Json()), b = its.value(key, Json());
    if (a == b) continue;
    return field_error("--model", "got {} = {}; want {}, as {} has it", key, a.dump(), b.dump(),
                       reader.folder());
  }
  return {};
}

}  // namespace copus
