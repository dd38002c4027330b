#include "copus/train/checkpoint/shard.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "copus/base/text.h"
#include "copus/train/state/holdings.h"

namespace copus {
namespace {

// Runs of fewer elements are not shared: a file of many short arrays is read slowly.
constexpr std::int64_t kSmallestRun = 1 << 15;

}  // namespace

std::string_view to_string(StateArray kind) {
  constexpr std::array<std::string_view, 3> kNames = {"weight", "moment1", "moment2"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string part_name(const ShardPart& part) {
  const Stripe& s = part.stripe;
  return fmt::format("{}/{}/{}.{}.{}.{}", to_string(part.kind), part.tensor, s.first_column,
                     s.columns, s.begin, s.end);
}

Result<ShardPart> parse_part_name(const std::string& name, const std::string& where) {
  const auto bad = [&](const std::string& why) {
    return make_error(
        "{}: array {}: {}; want KIND/TENSOR/FIRSTCOLUMN.COLUMNS.BEGIN.END with the kind weight, "
        "moment1 or moment2",
        where, Json(shortened(name, 100)).dump(-1, ' ', true, Json::error_handler_t::replace), why);
  };
  const std::vector<std::string_view> fields = split(name, '/');
  if (fields.size() != 3) return bad("got another number of parts");
  ShardPart part;
  bool known = false;
  for (const StateArray kind : kStateArrays) {
    if (fields[0] != to_string(kind)) continue;
    part.kind = kind;
    known = true;
  }
  if (!known) return bad("got another kind");
  part.tensor = fields[1];
  const std::vector<std::string_view> numbers = split(fields[2], '.');
  if (numbers.size() != 4) return bad("want four numbers");
  const std::array<std::int64_t*, 4> places = {&part.stripe.first_column, &part.stripe.columns,
                                               &part.stripe.begin, &part.stripe.end};
  for (std::size_t i = 0; i < places.size(); ++i) {
    const Result<std::int64_t> number = parse_integer(numbers[i], "stripe", 0, kMaxInt64);
    if (!number) return bad(number.error().message);
    *places[i] = *number;
  }
  const Stripe& s = part.stripe;
  if (s.columns < 1 || s.first_column > kMaxInt64 - s.columns || s.empty() ||
      s.end > kMaxInt64 / static_cast<std::int64_t>(sizeof(float))) {
    return bad("got a stripe that is none");
  }
  // One spelling for a stripe: no "+1", no "01".
  if (part_name(part) != name) return bad("got another spelling");
  return part;
}

std::string shard_name(int rank) { return fmt::format("shard-{}.safetensors", rank); }

std::vector<ShardRun> shard_runs(const ModelSpec& model, const ParallelPlan& plan,
                                 std::int64_t bucket_elements, int rank) {
  const Holdings holdings(model, plan, bucket_elements);
  std::vector<ShardRun> runs;
  // What is not shared goes to the holders in turn.
  std::int64_t turn = 0;
  for (std::size_t tensor = 0; tensor < holdings.tensors(); ++tensor) {
    for (const auto& lane : holdings.held(tensor, StateKind::kOptimizer)) {
      for (const Holding& holding : lane) {
        const std::int64_t holders = holding.ranks.count();
        const std::int64_t size = holding.stripe.size();
        const std::int64_t sharers = std::clamp<std::int64_t>(size / kSmallestRun, 1, holders);
        const std::int64_t first = sharers < holders ? turn++ : 0;
        std::int64_t index = 0;
        holdings.for_each_rank(holding.ranks, [&](int holder) {
          const std::int64_t share = (index++ + first) % holders;
          if (holder != rank || share >= sharers) return;
          Stripe mine = holding.stripe;
          mine.begin = holding.stripe.begin + size * share / sharers;
          mine.end = holding.stripe.begin + size * (share + 1) / sharers;
          runs.push_back({tensor, mine});
        });
      }
    }
  }
  return runs;
}

Result<CheckpointFile> write_shard(const std::string& folder, const std::string& name,
                                   const std::vector<ShardPart>& parts,
                                   std::span<const float> data) {
  std::vector<SafetensorsArray> arrays;
  arrays.reserve(parts.size());
  for (const ShardPart& part : parts) {
    arrays.push_back({.name = part_name(part), .shape = {part.stripe.size()}});
  }
  COPUS_TRY(SafetensorsWriter writer,
            SafetensorsWriter::create((std::filesystem::path(folder) / name).string(),
                                      std::move(arrays), {{"format", "copus-checkpoint"}}));
  COPUS_TRY_VOID(writer.write(std::as_bytes(data)));
  COPUS_TRY(const SafetensorsWriter::Written written, writer.finish());
  return CheckpointFile{name, written.bytes, written.xxh3};
}

}  // namespace copus
