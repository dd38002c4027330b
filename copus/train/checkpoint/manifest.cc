#include "copus/train/checkpoint/manifest.h"

#include <filesystem>
#include <set>

#include "copus/base/checksum.h"
#include "copus/spec/hf_config.h"
#include "copus/spec/hf_config_writer.h"

namespace copus {
namespace {

constexpr int kFormat = 1;
constexpr const char* kChecksum = "checksum";

// The text whose checksum the manifest has.
std::string sealed_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Whether the name can only be that of a file beside the manifest.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name[0] != '.' && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

Result<std::vector<CheckpointFile>> read_files(const Json& json, const std::string& where) {
  if (!json.is_array() || json.empty()) {
    return error_in(where, field_error("files", "want a list of at least one file"));
  }
  std::vector<CheckpointFile> files;
  std::set<std::string> names;
  for (const Json& entry : json) {
    CheckpointFile file;
    FieldReader fields(entry, where + ": files");
    file.name = fields.text("name");
    file.bytes = fields.integer("bytes", 1, kMaxInt64);
    const std::string xxh3 = fields.text("xxh3");
    fields.refuse_unknown();
    COPUS_TRY_VOID(fields.finish());
    COPUS_TRY(file.xxh3, parse_checksum(xxh3, where + ": files: xxh3"));
    if (!is_plain_name(file.name) || file.name == kManifestName) {
      return error_in(
          where, field_error("files", "name: got {}; want a file in the same folder",
                             Json(file.name).dump(-1, ' ', true, Json::error_handler_t::replace)));
    }
    if (!names.insert(file.name).second) {
      return error_in(where, field_error("files", "got {} twice; want each once", file.name));
    }
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace

std::string print_manifest(const Manifest& manifest) {
  Json files = Json::array();
  for (const CheckpointFile& file : manifest.files) {
    files.push_back(
        {{"name", file.name}, {"bytes", file.bytes}, {"xxh3", checksum_text(file.xxh3)}});
  }
  Json json = {{"format", manifest.format},
               {"model", hf_config_json(manifest.model)},
               {"plan", plan_to_json(manifest.plan)},
               {"step", manifest.step},
               {"samples", manifest.samples},
               {"updates", manifest.updates},
               {"global_batch", manifest.global_batch},
               {"seq_len", manifest.seq_len},
               {"seed", manifest.seed},
               {"optimizer", manifest.optimizer},
               {"files", std::move(files)},
               {"run", manifest.run}};
  json[kChecksum] = checksum_text(xxh3_of(sealed_text(json)));
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Manifest> parse_manifest(const std::string& text, const std::string& where) {
  COPUS_TRY(Json json, parse_json(text, where));
  // A later format may have other fields, so its number is checked first.
  FieldReader fields(json, where);
  Manifest manifest;
  manifest.format = static_cast<int>(fields.integer("format", 1, kFormat));
  const std::string checksum = fields.text(kChecksum);
  COPUS_TRY_VOID(fields.finish());
  COPUS_TRY(const std::uint64_t wanted, parse_checksum(checksum, where + ": " + kChecksum));
  Json sealed = json;
  sealed.erase(kChecksum);
  const std::string again = json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  if (xxh3_of(sealed_text(sealed)) != wanted || again != text) {
    return make_error("{}: is damaged: its checksum does not match", where);
  }

  const Json& model = fields.child("model");
  const Json& plan = fields.child("plan");
  manifest.step = fields.integer("step", 0, kMaxInt64);
  manifest.samples = fields.integer("samples", 0, kMaxInt64);
  manifest.updates = fields.integer("updates", 0, kMaxInt64);
  manifest.global_batch = fields.integer("global_batch", 1, kMaxInt64);
  manifest.seq_len = fields.integer("seq_len", 1, kMaxInt64);
  manifest.seed = static_cast<std::uint64_t>(fields.integer("seed", 0, kMaxInt64));
  manifest.optimizer = fields.boolean_or("optimizer", true);
  const Json& files = fields.child("files");
  manifest.run = fields.child("run");
  fields.refuse_unknown();
  COPUS_TRY_VOID(fields.finish());
  if (!manifest.run.is_object()) return error_in(where, field_error("run", "want an object"));
  COPUS_TRY(manifest.model, parse_hf_config(model.dump(), where + ": model"));
  COPUS_TRY(const PartialPlan parsed, plan_from_json(plan, where + ": plan"));
  manifest.plan = parsed.plan;
  COPUS_TRY(manifest.files, read_files(files, where));
  return manifest;
}

Result<Manifest> read_manifest(const std::string& folder) {
  const std::string path = (std::filesystem::path(folder) / kManifestName).string();
  COPUS_TRY(const std::string text, read_json_text(path));
  return parse_manifest(text, path);
}

}  // namespace copus
