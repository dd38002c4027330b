// copus checkpoint: inspects and verifies a run's checkpoints, exports them for Hugging Face's
// transformers, and imports transformers' models.
#include "apps/copus/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <filesystem>

#include "apps/copus/byte_progress.h"
#include "apps/copus/command_line.h"
#include "apps/copus/commands.h"
#include "apps/copus/common.h"
#include "copus/base/text.h"
#include "copus/train/checkpoint/hf_export.h"
#include "copus/train/checkpoint/hf_import.h"

namespace copus {
namespace {

namespace fs = std::filesystem;

struct SizeUnit {
  const char* name;
  double bytes;
};
constexpr std::array kSizeUnits = {SizeUnit{"GiB", 0x1p30}, SizeUnit{"GB", 1e9},
                                   SizeUnit{"MiB", 0x1p20}, SizeUnit{"MB", 1e6},
                                   SizeUnit{"KiB", 0x1p10}, SizeUnit{"KB", 1e3}};

// The values of an option that takes a size, as "5GB" (a power of 1000) or "500MiB" (a power of
// 1024). transformers writes sizes in the same way.
Values<Bytes> file_size() {
  return single<Bytes>(
      "SIZE",
      [](const std::string& text, const std::string& field) -> Result<Bytes> {
        for (const SizeUnit& unit : kSizeUnits) {
          const std::string_view name = unit.name;
          if (!text.ends_with(name)) continue;
          const Result<double> parsed =
              parse_number(text.substr(0, text.size() - name.size()), field, 1e-3, 1e9);
          if (!parsed) break;
          return Bytes(*parsed * unit.bytes);
        }
        return field_error(field, "got \"{}\"; want a size as 5GB, 500MB or 2GiB", text);
      },
      [](Bytes size) -> Json {
        for (const SizeUnit& unit : kSizeUnits) {
          const double count = size.v / unit.bytes;
          if (count == std::trunc(count)) return fmt::format("{}{}", count, unit.name);
        }
        return fmt::format("{}KB", size.v / 1e3);
      });
}

struct ExportArgs : OptionGroup {
  Option<std::string> path{this, "path", text("PATH"),
                           "a checkpoint, or a run directory for its newest checkpoint",
                           Required()};
  Option<std::string> out{this, "--out", text("FOLDER"), "a new folder, or an empty one",
                          Required()};
  Option<std::string> dtype{this, "--dtype", word({"bf16", "fp32"}),
                            "type of the tensors; fp32: as trained", "bf16"};
  Option<Bytes> max_shard_size{
      this, "--max-shard-size", file_size(),
      "largest size of a file, as 5GB or 500MiB; a larger tensor gets its own file",
      Bytes(static_cast<double>(HfExportOptions().max_shard_bytes))};
  JsonOption json{this};
};

struct ImportArgs : OptionGroup {
  Option<std::string> folder{this, "folder", text("FOLDER"),
                             "folder with config.json and model.safetensors", Required()};
  Option<std::string> run_dir{this, "--run-dir", text("FOLDER"),
                              "run directory to create; it must not hold checkpoints or events",
                              Required()};
  JsonOption json{this};
};

Result<HfExported> run_export_of(const ExportArgs& args, const std::string& folder,
                                 ByteProgress& progress) {
  HfExportOptions options;
  options.dtype = *args.dtype == "bf16" ? "BF16" : "F32";
  options.max_shard_bytes = static_cast<std::int64_t>(args.max_shard_size->v);
  options.progress = [&](std::int64_t bytes) { progress(bytes); };
  // Damaged weights that load without an error would be worse than a failed export.
  COPUS_TRY_VOID(verify(folder));
  COPUS_TRY(const CheckpointReader reader, CheckpointReader::open(folder));
  return export_to_hf(reader, *args.out, options);
}

int run_export(const ExportArgs& args) {
  const Result<CheckpointChoice> choice = choose_checkpoints(*args.path);
  if (!choice) return report(choice.error());
  const std::string& folder = choice->checkpoints.back().folder;
  ByteProgress progress(0);
  const Result<HfExported> exported = run_export_of(args, folder, progress);
  progress.clear();
  if (!exported) return report(exported.error());
  if (*args.json) {
    Json json;
    json["checkpoint"] = folder;
    json["output"] = *args.out;
    json["dtype"] = *args.dtype;
    json["tensors"] = exported->tensors;
    json["bytes"] = exported->bytes;
    json["files"] = exported->files;
    fmt::print("{}\n", json.dump(2, ' ', true, Json::error_handler_t::replace));
    return kOk;
  }
  fmt::print("{}: {} of {}, {} in {}, from {}\n", *args.out, counted(exported->tensors, "tensor"),
             *args.dtype, human_bytes(static_cast<double>(exported->bytes)),
             counted(static_cast<std::int64_t>(exported->files.size()), "file"), folder);
  fmt::print("no tokenizer is written: copy the tokenizer of the training data into the folder\n");
  return kOk;
}

int run_import(const ImportArgs& args) {
  ByteProgress progress(0);
  const Result<HfImported> imported =
      import_from_hf(*args.folder, *args.run_dir, [&](std::int64_t bytes) { progress(bytes); });
  progress.clear();
  if (!imported) return report(imported.error());
  const ModelSpec& model = imported->model;
  if (*args.json) {
    Json json;
    json["checkpoint"] = imported->checkpoint;
    json["model"] = {
        {"name", model.name}, {"family", model.family}, {"parameters", model.total_params()}};
    json["tensors"] = imported->tensors;
    json["formats"] = imported->formats;
    json["ignored"] = imported->ignored;
    fmt::print("{}\n", json.dump(2, ' ', true, Json::error_handler_t::replace));
    return kOk;
  }
  fmt::print("{}: {}, {} ({} parameters), weights alone, from {} tensors of {}\n",
             imported->checkpoint, model.name, model.family,
             human_count(static_cast<double>(model.total_params())), imported->tensors,
             fmt::join(imported->formats, " and "));
  if (!imported->ignored.empty()) {
    fmt::print("left out, for they are no weights: {}{}\n", imported->ignored[0],
               imported->ignored.size() == 1
                   ? std::string()
                   : fmt::format(" and {} more", imported->ignored.size() - 1));
  }
  fmt::print("to go on: copus train --resume --run-dir {} --steps 100\n", *args.run_dir);
  return kOk;
}

}  // namespace

Result<CheckpointChoice> choose_checkpoints(const std::string& path) {
  std::error_code failed;
  if (!fs::is_directory(path, failed)) {
    return make_error("{}: not a folder; want a checkpoint or a run directory", path);
  }
  // A checkpoint without a manifest still counts as one, so that the error names the missing file.
  fs::path at = fs::path(path).lexically_normal();
  if (!at.has_filename()) at = at.parent_path();
  if (fs::exists(at / kManifestName, failed) || at.filename().string().starts_with("step-")) {
    return CheckpointChoice{.is_run = false, .checkpoints = {{0, path}}};
  }
  COPUS_TRY(std::vector<PublishedCheckpoint> found, list_checkpoints(path));
  if (found.empty()) {
    return make_error(
        "{}: got no checkpoints; want a folder with {}, or a run directory with "
        "checkpoints/step-N",
        path, kManifestName);
  }
  return CheckpointChoice{.is_run = true, .checkpoints = std::move(found)};
}

void add_checkpoint_command(CommandLine& line) {
  CLI::App& parent = line.add_parent(
      {"checkpoint", "Look into checkpoints, check them, export to and import from Hugging Face",
       "copus checkpoint inspect runs/first"});
  line.add<CheckpointLookArgs>(
      {"inspect", "Show what is in checkpoints", "copus checkpoint inspect runs/first"},
      inspect_checkpoints, &parent);
  line.add<CheckpointLookArgs>(
      {"verify", "Read every byte and check it; exit code 1 if one has changed",
       "copus checkpoint verify runs/first"},
      verify_checkpoints, &parent);
  line.add<ExportArgs>({"export", "Write the weights as Hugging Face's transformers loads them",
                        "copus checkpoint export runs/first --out first-hf"},
                       run_export, &parent);
  line.add<ImportArgs>({"import", "Begin a run with the weights of a Hugging Face model",
                        "copus checkpoint import Llama-3.2-1B --run-dir runs/tuned"},
                       run_import, &parent);
}

}  // namespace copus
