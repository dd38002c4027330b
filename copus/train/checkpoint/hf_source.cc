#include "copus/train/checkpoint/hf_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <utility>

#include "copus/base/json.h"
#include "copus/interop/half_floats.h"
#include "copus/spec/hf_config.h"
#include "copus/spec/hf_numerics.h"

namespace copus {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// For example, "a, b, c and 4 more".
std::string first_few(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 3;
  std::string text;
  for (std::size_t i = 0; i < std::min(kShown, names.size()); ++i) {
    text += (i == 0 ? "" : ", ") + printable(names[i]);
  }
  return names.size() > kShown ? fmt::format("{} and {} more", text, names.size() - kShown) : text;
}

// The files that an index names, in its order, each once. They must lie beside the index.
Result<std::vector<std::string>> files_of_index(const Json& index, const std::string& where) {
  FieldReader fields(index, where);
  const Json& map = fields.child("weight_map");
  COPUS_TRY_VOID(fields.finish());
  if (!map.is_object() || map.empty()) {
    return error_in(
        where, field_error("weight_map", "got {}; want an object of tensor names and their files",
                           map.is_null() ? "none" : "another type"));
  }
  std::vector<std::string> files;
  std::set<std::string> seen;
  for (const auto& [tensor, file] : map.items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : std::string();
    if (!name.ends_with(".safetensors") || name.find('/') != std::string::npos) {
      return error_in(
          where,
          field_error("weight_map", "{}: got {}; want the name of a .safetensors file beside it",
                      printable(tensor),
                      printable(file.dump(-1, ' ', true, Json::error_handler_t::replace))));
    }
    if (seen.insert(name).second) files.push_back(name);
  }
  return files;
}

}  // namespace

Result<HfSource> HfSource::open(const std::string& folder) {
  const fs::path at(folder);
  std::error_code failed;
  if (!fs::is_directory(at, failed)) {
    return make_error("{}: not a folder; want one with config.json and {}", folder, kSingle);
  }
  HfSource source;
  // With a slash, so that it is a path even where the catalog has a model of the folder's name.
  COPUS_TRY(source.model_, load_model((at / "config.json").string()));
  COPUS_TRY_VOID(source.open_files(folder));
  COPUS_TRY_VOID(source.place(folder));
  return source;
}

Result<void> HfSource::open_files(const std::string& folder) {
  const fs::path at(folder);
  std::vector<std::string> names = {kSingle};
  Json index;
  const std::string index_path = (at / kIndex).string();
  if (!is_there(at / kSingle)) {
    if (!is_there(index_path)) {
      return make_error(
          "{}: got neither {} nor {}; want the model as safetensors{}", folder, kSingle, kIndex,
          is_there(at / "pytorch_model.bin") || is_there(at / "pytorch_model.bin.index.json")
              ? " (transformers' save_pretrained converts pytorch_model.bin)"
              : "");
    }
    COPUS_TRY(index, read_json_file(index_path));
    COPUS_TRY(names, files_of_index(index, index_path));
  }
  std::map<std::string, std::string> file_of;
  for (const std::string& name : names) {
    COPUS_TRY(SafetensorsFile file, SafetensorsFile::open((at / name).string()));
    for (const SafetensorsArray& array : file.header().arrays) {
      const auto [twin, is_new] = file_of.emplace(array.name, name);
      if (!is_new) {
        return make_error("{}: {}: got it in {} too; want each tensor once", file.path(),
                          printable(array.name), twin->second);
      }
    }
    files_.push_back(std::move(file));
  }
  if (index.is_null()) return {};
  for (const auto& [tensor, file] : index.at("weight_map").items()) {
    const auto found = file_of.find(tensor);
    if (found == file_of.end() || found->second != file.get_ref<const std::string&>()) {
      return error_in(index_path,
                      field_error("weight_map", "{}: got {}, which lacks this tensor; want {}",
                                  printable(tensor), printable(file.get<std::string>()),
                                  found == file_of.end() ? "the file that has it" : found->second));
    }
  }
  return {};
}

Result<void> HfSource::place(const std::string& folder) {
  COPUS_TRY(const std::vector<HfTensor> wanted, hf_tensors(model_));
  struct Found {
    std::size_t file;
    const SafetensorsArray* array;
  };
  std::map<std::string, Found> arrays;
  for (std::size_t i = 0; i < files_.size(); ++i) {
    for (const SafetensorsArray& array : files_[i].header().arrays) {
      const std::string name = with_model_prefix(model_, array.name);
      if (is_no_weight(model_, name)) {
        ignored_.push_back(array.name);
      } else if (!arrays.emplace(name, Found{i, &array}).second) {
        return make_error("{}: {}: got it with and without its prefix; want it once",
                          files_[i].path(), printable(array.name));
      }
    }
  }
  std::vector<std::string> missing;
  std::set<std::string> formats;
  for (const HfTensor& tensor : wanted) {
    const auto found = arrays.find(tensor.name);
    if (found == arrays.end()) {
      missing.push_back(tensor.name);
      continue;
    }
    const auto [file, array] = found->second;
    COPUS_TRY_VOID(check(tensor, file, *array));
    formats.insert(array->dtype);
    bytes_ += array->end - array->begin;
    ++tensors_;
    std::int64_t row = 0;
    for (const TensorSpec& part : tensor.parts) {
      const std::int64_t rows = part.shape[0];
      places_[part.name] = {.file = file,
                            .array = *array,
                            .first_row = row,
                            .rows = rows,
                            .columns = part.shape.size() == 2 ? part.shape[1] : 1,
                            .transposed = tensor.transposed};
      row += rows;
    }
    arrays.erase(found);
  }
  if (!missing.empty()) {
    return make_error("{}: got no {}; want all {} tensors of the model that config.json describes",
                      folder, first_few(missing), wanted.size());
  }
  if (!arrays.empty()) {
    std::vector<std::string> names;
    names.reserve(arrays.size());
    for (const auto& [name, found] : arrays) names.push_back(found.array->name);
    return make_error(
        "{}: got {}; want only the tensors of the {} model that config.json describes", folder,
        first_few(names), model_.family);
  }
  formats_.assign(formats.begin(), formats.end());
  return {};
}

Result<void> HfSource::check(const HfTensor& wanted, std::size_t file,
                             const SafetensorsArray& array) const {
  const std::string where = fmt::format("{}: {}", files_[file].path(), array.name);
  if (float_bytes(array.dtype) == 0) {
    return make_error("{}: got {}; want F32, BF16 or F16", where, array.dtype);
  }
  if (array.shape != wanted.shape) {
    return error_in(where,
                    field_error("shape", "got [{}]; want [{}], as config.json says",
                                fmt::join(array.shape, ", "), fmt::join(wanted.shape, ", ")));
  }
  return {};
}

// Elements [first, first + out.size()) of the array.
Result<void> HfSource::read_floats(const Place& place, std::int64_t first,
                                   std::span<float> out) const {
  constexpr std::size_t kBlock = std::size_t{1} << 20;  // elements
  const auto width = static_cast<std::size_t>(float_bytes(place.array.dtype));
  std::vector<std::byte> bytes(std::min(kBlock, out.size()) * width);
  for (std::size_t done = 0; done < out.size();) {
    const std::size_t count = std::min(kBlock, out.size() - done);
    const std::span<std::byte> block = std::span(bytes).first(count * width);
    COPUS_TRY_VOID(files_[place.file].read(
        place.array, (first + static_cast<std::int64_t>(done)) * static_cast<std::int64_t>(width),
        block));
    widen(place.array.dtype, block, out.subspan(done, count));
    done += count;
  }
  const auto bad = std::find_if(out.begin(), out.end(), [](float x) { return !std::isfinite(x); });
  if (bad != out.end()) {
    return make_error("{}: {}: element {}: got {}; want finite weights", files_[place.file].path(),
                      place.array.name, first + (bad - out.begin()), *bad);
  }
  return {};
}

Result<void> HfSource::read(const std::string& name, std::span<float> out) const {
  const auto found = places_.find(name);
  COPUS_CHECK(found != places_.end());
  const Place& place = found->second;
  COPUS_CHECK(static_cast<std::int64_t>(out.size()) == place.rows * place.columns);
  if (!place.transposed) return read_floats(place, place.first_row * place.columns, out);
  // The array has the shape [our columns, stacked rows].
  const std::int64_t stacked = place.array.shape[1];
  std::vector<float> turned(out.size());
  for (std::int64_t column = 0; column < place.columns; ++column) {
    const std::span<float> line = std::span(turned).subspan(
        static_cast<std::size_t>(column * place.rows), static_cast<std::size_t>(place.rows));
    COPUS_TRY_VOID(read_floats(place, column * stacked + place.first_row, line));
  }
  transpose(turned.data(), place.columns, place.rows, out.data());
  return {};
}

}  // namespace copus
