#include "copus/train/run/same_options.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "copus/base/text.h"
#include "copus/spec/hf_config_writer.h"
#include "copus/train/comm/agree.h"
#include "copus/train/options/open_data.h"

namespace copus {
namespace {

// Some options may contain a path, which may differ between machines. For these, the content that
// the path leads to is compared instead.
bool is_compared(std::string_view option) {
  constexpr std::array<std::string_view, 5> kPaths = {"model", "data", "run-dir", "fix", "cluster"};
  return std::find(kPaths.begin(), kPaths.end(), option) == kPaths.end();
}

std::string lines_of(std::string_view what, const Json& object) {
  std::string text;
  for (const auto& [key, value] : object.items()) {
    text += fmt::format("{}: {} = {}\n", what, key, value.dump());
  }
  return text;
}

// Returns what must be the same on every rank, one line for each value.
std::string common_options(const RunOptions& options, const Dataset& data) {
  std::string text;
  for (const std::string_view line : split(options.config, '\n')) {
    if (!line.empty() && is_compared(line.substr(0, line.find(' ')))) {
      text += fmt::format("{}\n", line);
    }
  }
  ModelSpec model = options.trainer.model;
  model.name.clear();
  text += lines_of("model", hf_config_json(model));
  for (const PartialPlan& space : options.adapt.spaces) {
    for (const PlanField field : space.given.list()) {
      text += fmt::format("fix: {} = {}\n", name_of(field), value_text(space.plan, field));
    }
  }
  if (options.adapt.cluster) {
    text += lines_of("cluster", cluster_to_json(*options.adapt.cluster));
  }
  return text + fmt::format("tokens of data = {}\nsamples = {:016x}\n", data.tokens(),
                            data_fingerprint(data));
}

}  // namespace

Result<void> check_same_options(const Rendezvous& where, const RunOptions& options,
                                const Dataset& data) {
  const std::string key = "copus/options";
  const std::string mine = common_options(options, data);
  if (where.rank == 0) {
    tell(where, key, mine);
    return {};
  }
  const std::string first = hear(where, key);
  if (mine == first) return {};
  const std::vector<std::string_view> ours = split(mine, '\n'), theirs = split(first, '\n');
  std::size_t i = 0;
  while (i < ours.size() && i < theirs.size() && ours[i] == theirs[i]) ++i;
  return make_error("rank {}: got {}; want {}, as rank 0 has it", where.rank,
                    i < ours.size() ? ours[i] : "", i < theirs.size() ? theirs[i] : "");
}

}  // namespace copus
