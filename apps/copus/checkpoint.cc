// copus checkpoint: a run's checkpoints looked into and checked, written for Hugging Face's
// transformers, and made from a model of theirs.
#include "apps/copus/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <filesystem>
#include <memory>

#include "apps/copus/byte_progress.h"
#include "apps/copus/common.h"
#include "copus/base/text.h"
#include "copus/train/checkpoint/hf_export.h"
#include "copus/train/checkpoint/hf_import.h"

namespace copus {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCommands = "inspect, verify, export or import";

struct ExportArgs {
  std::string path;
  std::string out;
  std::string dtype = "bf16";
  std::string max_shard_size = "5GB";
  bool json = false;
};

struct ImportArgs {
  std::string folder;
  std::string run_dir;
  bool json = false;
};

// "5GB" or "500MiB": thousands or 1024s, as transformers takes them.
Result<std::int64_t> parse_size(const std::string& text, const char* field) {
  struct Unit {
    const char* name;
    double bytes;
  };
  constexpr std::array kUnits = {Unit{"KiB", 0x1p10}, Unit{"MiB", 0x1p20}, Unit{"GiB", 0x1p30},
                                 Unit{"KB", 1e3},     Unit{"MB", 1e6},     Unit{"GB", 1e9}};
  for (const Unit& unit : kUnits) {
    if (!text.ends_with(unit.name)) continue;
    const std::string number = text.substr(0, text.size() - std::string_view(unit.name).size());
    const Result<double> parsed = parse_number(number, field, 1e-3, 1e9);
    if (!parsed) break;
    return static_cast<std::int64_t>(*parsed * unit.bytes);
  }
  return make_error("{}: got \"{}\"; want a size as 5GB, 500MB or 2GiB", field, text);
}

Result<HfExported> run_export_of(const ExportArgs& args, const std::string& folder,
                                 ByteProgress& progress) {
  HfExportOptions options;
  if (args.dtype != "bf16" && args.dtype != "fp32") {
    return make_error("--dtype: got {}; want bf16 or fp32", args.dtype);
  }
  options.dtype = args.dtype == "bf16" ? "BF16" : "F32";
  COPUS_TRY(options.max_shard_bytes, parse_size(args.max_shard_size, "--max-shard-size"));
  options.progress = [&](std::int64_t bytes) { progress(bytes); };
  // Wrong weights that load without a word would be worse than none.
  COPUS_TRY_VOID(verify(folder));
  COPUS_TRY(const CheckpointReader reader, CheckpointReader::open(folder));
  return export_to_hf(reader, args.out, options);
}

int run_export(const ExportArgs& args) {
  const Result<CheckpointChoice> choice = choose_checkpoints(args.path);
  if (!choice) return report(choice.error());
  const std::string& folder = choice->checkpoints.back().folder;
  ByteProgress progress(0);
  const Result<HfExported> exported = run_export_of(args, folder, progress);
  progress.clear();
  if (!exported) return report(exported.error());
  if (args.json) {
    Json json;
    json["checkpoint"] = folder;
    json["output"] = args.out;
    json["dtype"] = args.dtype;
    json["tensors"] = exported->tensors;
    json["bytes"] = exported->bytes;
    json["files"] = exported->files;
    fmt::print("{}\n", json.dump(2, ' ', true, Json::error_handler_t::replace));
    return kOk;
  }
  fmt::print("{}: {} tensors of {}, {} in {} files, from {}\n", args.out, exported->tensors,
             args.dtype, human_bytes(static_cast<double>(exported->bytes)), exported->files.size(),
             folder);
  fmt::print("no tokenizer is written: put the one that the data was made with beside them\n");
  return kOk;
}

int run_import(const ImportArgs& args) {
  ByteProgress progress(0);
  const Result<HfImported> imported =
      import_from_hf(args.folder, args.run_dir, [&](std::int64_t bytes) { progress(bytes); });
  progress.clear();
  if (!imported) return report(imported.error());
  const ModelSpec& model = imported->model;
  if (args.json) {
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
  fmt::print("to go on: copus train --resume --run-dir {} --model {} --steps 100\n", args.run_dir,
             args.folder);
  return kOk;
}

void look_command(CLI::App& checkpoint, int& exit_code, const char* name, const char* what,
                  int (*run)(const CheckpointLookArgs&)) {
  auto args = std::make_shared<CheckpointLookArgs>();
  CLI::App* command = checkpoint.add_subcommand(name, what);
  command->add_option("path", args->path, "a checkpoint, or a run directory for all of its")
      ->required()
      ->check(not_empty());
  command->add_flag("--json", args->json, "print JSON");
  command->footer(fmt::format("Example: copus checkpoint {} runs/first", name));
  command->callback([args, run, &exit_code] { exit_code = run(*args); });
}

void add_export(CLI::App& checkpoint, int& exit_code) {
  auto args = std::make_shared<ExportArgs>();
  CLI::App* command = checkpoint.add_subcommand(
      "export", "Write the weights as Hugging Face's transformers loads them");
  command->add_option("path", args->path, "a checkpoint, or a run directory for its last")
      ->required()
      ->check(not_empty());
  command->add_option("--out", args->out, "folder to make")->required()->check(not_empty());
  command->add_option("--dtype", args->dtype, "bf16 or fp32 (default: bf16)")->check(not_empty());
  command
      ->add_option("--max-shard-size", args->max_shard_size,
                   "tensors in one file at most, as 5GB or 500MiB (default: 5GB)")
      ->check(not_empty());
  command->add_flag("--json", args->json, "print JSON");
  command->footer("Example: copus checkpoint export runs/first --out first-hf");
  command->callback([args, &exit_code] { exit_code = run_export(*args); });
}

void add_import(CLI::App& checkpoint, int& exit_code) {
  auto args = std::make_shared<ImportArgs>();
  CLI::App* command =
      checkpoint.add_subcommand("import", "Begin a run with the weights of a Hugging Face model");
  command->add_option("folder", args->folder, "a folder with config.json and model.safetensors")
      ->required()
      ->check(not_empty());
  command->add_option("--run-dir", args->run_dir, "run directory to make")
      ->required()
      ->check(not_empty());
  command->add_flag("--json", args->json, "print JSON");
  command->footer("Example: copus checkpoint import Llama-3.2-1B --run-dir runs/tuned");
  command->callback([args, &exit_code] { exit_code = run_import(*args); });
}

}  // namespace

Result<CheckpointChoice> choose_checkpoints(const std::string& path) {
  std::error_code failed;
  if (!fs::is_directory(path, failed)) {
    return make_error("{}: not a folder; want a checkpoint or a run directory", path);
  }
  // One that has lost its manifest is still a checkpoint: the error is about that file then.
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

void add_checkpoint_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "checkpoint", "Look into checkpoints, check them, export to and import from Hugging Face");
  command->require_subcommand(0, 1);
  command->footer("Example: copus checkpoint inspect runs/first");
  look_command(*command, exit_code, "inspect", "Show what is in checkpoints", inspect_checkpoints);
  look_command(*command, exit_code, "verify",
               "Read every byte and check it; exit code 1 if one is not as it was",
               verify_checkpoints);
  add_export(*command, exit_code);
  add_import(*command, exit_code);
  command->callback([command, &exit_code] {
    if (!command->get_subcommands().empty()) return;
    exit_code = report(make_error("checkpoint: got nothing to do; want {}", kCommands));
  });
}

}  // namespace copus
