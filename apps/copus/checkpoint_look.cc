// copus checkpoint inspect and verify: print what checkpoints contain, and check that they are
// intact.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <optional>

#include "apps/copus/byte_progress.h"
#include "apps/copus/checkpoint.h"
#include "apps/copus/common.h"
#include "copus/base/checksum.h"
#include "copus/base/json.h"
#include "copus/base/text.h"
#include "copus/goodput/noise_scale.h"
#include "copus/train/checkpoint/reader.h"
#include "copus/train/checkpoint/run_state.h"

namespace copus {
namespace {

void print_json(const Json& json) {
  fmt::print("{}\n", json.dump(2, ' ', true, Json::error_handler_t::replace));
}

std::int64_t bytes_of(const Manifest& manifest) {
  std::int64_t bytes = 0;
  for (const CheckpointFile& file : manifest.files) bytes += file.bytes;
  return bytes;
}

std::string human_size(std::int64_t bytes) { return human_bytes(static_cast<double>(bytes)); }

// Returns the run's state beside weights and moments; empty for an import and for a damaged
// checkpoint.
RunState kept_of(const Manifest& manifest) {
  Result<RunState> state = run_state_from_json(manifest.run, "run");
  return state ? std::move(state).value() : RunState();
}

// Returns the noise scale in samples; nothing if it is not known.
std::optional<double> noise_scale_of(const Manifest& manifest) {
  const Json controller = kept_of(manifest).controller;
  if (!controller.is_object() || !controller.contains("noise")) return std::nullopt;
  const Result<NoiseScale> state = NoiseScale::from_json(controller.at("noise"), "noise");
  if (!state) return std::nullopt;
  const std::optional<NoiseEstimate> estimate = state->estimate();
  if (!estimate || !(estimate->gns > 0) || !std::isfinite(estimate->gns)) return std::nullopt;
  return estimate->gns;
}

std::string number_text(const std::optional<double>& number, const char* otherwise) {
  return number ? fmt::format("{:.4g}", *number) : otherwise;
}

Json manifest_json(const std::string& folder, const Manifest& m) {
  Json json;
  json["checkpoint"] = folder;
  json["step"] = m.step;
  json["samples"] = m.samples;
  json["updates"] = m.updates;
  json["global_batch"] = m.global_batch;
  json["seq_len"] = m.seq_len;
  json["seed"] = m.seed;
  json["model"] = {
      {"name", m.model.name}, {"family", m.model.family}, {"parameters", m.model.total_params()}};
  json["plan"] = plan_to_json(m.plan);
  json["optimizer"] = m.optimizer;
  json["loss"] = number_or_null(kept_of(m).loss);
  json["noise_scale"] = number_or_null(noise_scale_of(m));
  json["bytes"] = bytes_of(m);
  Json& files = json["files"] = Json::array();
  for (const CheckpointFile& file : m.files) {
    files.push_back(
        {{"name", file.name}, {"bytes", file.bytes}, {"xxh3", checksum_text(file.xxh3)}});
  }
  json["run"] = m.run;
  return json;
}

void print_manifest_text(const std::string& folder, const Manifest& m) {
  const std::int64_t ranks = m.plan.gpus();
  fmt::print("checkpoint  {}\n", folder);
  fmt::print("model       {}, {} ({} parameters)\n", m.model.name, m.model.family,
             human_count(static_cast<double>(m.model.total_params())));
  fmt::print("step        {}, {}\n", m.step, counted(m.samples, "sample"));
  if (m.optimizer) {
    fmt::print("batch       {} x {} tokens, seed {}\n", m.global_batch, m.seq_len, m.seed);
    fmt::print("plan        {}, {}\n", short_name(m.plan), counted(ranks, "rank"));
    fmt::print("state       weights, moments after {}\n", counted(m.updates, "update"));
    fmt::print("loss        {}; noise scale {}\n", number_text(kept_of(m).loss, "not known"),
               number_text(noise_scale_of(m), "not known"));
  } else {
    fmt::print("state       weights alone: moments start at 0\n");
  }
  fmt::print("files       {}, {}\n", m.files.size(), human_size(bytes_of(m)));
  for (const CheckpointFile& file : m.files) {
    fmt::print("  {}  {}  {}\n", file.name, human_size(file.bytes), checksum_text(file.xxh3));
  }
}

int inspect_run(const CheckpointChoice& choice, const CheckpointLookArgs& args) {
  Json list = Json::array();
  std::vector<std::vector<std::string>> rows;
  for (const PublishedCheckpoint& each : choice.checkpoints) {
    const Result<CheckpointReader> reader = CheckpointReader::open(each.folder);
    if (!reader) {
      list.push_back(
          {{"checkpoint", each.folder}, {"step", each.step}, {"error", reader.error().message}});
      rows.push_back({std::to_string(each.step), "", "", "", "", "", "", reader.error().message});
      continue;
    }
    const Manifest& m = reader->manifest();
    list.push_back(manifest_json(each.folder, m));
    rows.push_back({std::to_string(m.step), std::to_string(m.samples),
                    m.optimizer ? std::to_string(m.global_batch) : "",
                    number_text(kept_of(m).loss, ""), m.optimizer ? short_name(m.plan) : "",
                    std::to_string(m.files.size()), human_size(bytes_of(m)),
                    m.optimizer ? "weights and moments" : "weights"});
  }
  if (*args.json) {
    print_json({{"run", *args.path}, {"checkpoints", list}});
  } else {
    fmt::print(
        "{}", format_table({"step", "samples", "batch", "loss", "<plan", "files", "size", "<state"},
                           rows));
  }
  return kOk;
}

// Returns the faults of a checkpoint, file by file; empty if it is intact. Adds the bytes of its
// files to `read`.
std::vector<std::string> faults_of(const std::string& folder, ByteProgress& progress,
                                   std::int64_t& read) {
  const Result<Manifest> manifest = read_manifest(folder);
  if (!manifest) return {manifest.error().message};
  std::vector<std::string> faults;
  // --resume finds the newest checkpoint by name, so the name must be right.
  const std::string name = std::filesystem::path(folder).lexically_normal().filename().string();
  if (name.starts_with("step-") && name != fmt::format("step-{}", manifest->step)) {
    faults.push_back(
        fmt::format("{}: its manifest is of step {}; want a folder name with that step", folder,
                    manifest->step));
  }
  for (const CheckpointFile& file : manifest->files) {
    if (const Result<void> whole = verify_file(folder, file); !whole) {
      faults.push_back(whole.error().message);
    }
    progress(read += file.bytes);
  }
  if (!faults.empty()) return faults;
  if (const Result<CheckpointReader> all = CheckpointReader::open(folder); !all) {
    faults.push_back(all.error().message);
  }
  return faults;
}

}  // namespace

int inspect_checkpoints(const CheckpointLookArgs& args) {
  const Result<CheckpointChoice> choice = choose_checkpoints(*args.path);
  if (!choice) return report(choice.error());
  if (choice->is_run) return inspect_run(*choice, args);
  const std::string& folder = choice->checkpoints[0].folder;
  const Result<CheckpointReader> reader = CheckpointReader::open(folder);
  if (!reader) return report(reader.error());
  if (*args.json) {
    print_json(manifest_json(folder, reader->manifest()));
  } else {
    print_manifest_text(folder, reader->manifest());
  }
  return kOk;
}

int verify_checkpoints(const CheckpointLookArgs& args) {
  const Result<CheckpointChoice> choice = choose_checkpoints(*args.path);
  if (!choice) return report(choice.error());
  Json list = Json::array();
  bool all_whole = true;
  ByteProgress progress(0);
  std::int64_t read = 0;
  for (const PublishedCheckpoint& each : choice->checkpoints) {
    const std::int64_t before = read;
    const std::vector<std::string> faults = faults_of(each.folder, progress, read);
    progress.clear();
    all_whole = all_whole && faults.empty();
    if (*args.json) {
      list.push_back({{"checkpoint", each.folder}, {"whole", faults.empty()}, {"faults", faults}});
    } else if (faults.empty()) {
      fmt::print("{}: whole, {}\n", each.folder, human_size(read - before));
    } else {
      fmt::print("{}: broken\n", each.folder);
      for (const std::string& fault : faults) fmt::print("  {}\n", fault);
    }
  }
  if (*args.json) print_json({{"whole", all_whole}, {"checkpoints", list}});
  return all_whole ? kOk : kAnswerIsNo;
}

}  // namespace copus
