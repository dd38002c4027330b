// Fuzzes the parsers of checkpoints and of imported models with arbitrary bytes. They must not
// crash, overflow, hang, or use more memory than the input's size explains. An error must be one
// line, and a parsed value must satisfy the invariants of its type.
//
// The first byte chooses the parser: s: a safetensors file; m: the text of a manifest; c: the
// content of a manifest, to which this target adds the right checksum; p: the name of a part in a
// shard.
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>

#include "copus/base/check.h"
#include "copus/base/checksum.h"
#include "copus/base/json.h"
#include "copus/interop/safetensors.h"
#include "copus/train/checkpoint/manifest.h"
#include "copus/train/checkpoint/shard.h"

namespace copus {
namespace {

template <typename T>
bool parsed(const Result<T>& result) {
  if (result) return true;
  COPUS_CHECK(!result.error().message.empty());
  COPUS_CHECK(result.error().message.find('\n') == std::string::npos);
  return false;
}

void fuzz_safetensors(std::string_view file) {
  const auto size = static_cast<std::int64_t>(file.size());
  const auto header = parse_safetensors_header(file, size, "file");
  if (!parsed(header)) return;
  // Every byte after the header belongs to exactly one array.
  COPUS_CHECK(header->data_begin >= 8 && header->data_begin <= size);
  std::int64_t end = 0;
  std::set<std::string> names;
  for (const SafetensorsArray& array : header->arrays) {
    COPUS_CHECK(array.begin == end && array.end >= array.begin);
    end = array.end;
    COPUS_CHECK(names.insert(array.name).second);
    COPUS_CHECK(header->find(array.name) == &array);
    const auto bytes = array_bytes(array, "file");
    COPUS_CHECK(bytes.has_value() && *bytes == array.end - array.begin);
  }
  COPUS_CHECK(header->data_begin + end == size);
}

void fuzz_manifest(const std::string& text) {
  const auto manifest = parse_manifest(text, "manifest.json");
  if (!parsed(manifest)) return;
  const std::string printed = print_manifest(*manifest);
  const auto again = parse_manifest(printed, "printed");
  COPUS_CHECK(again.has_value());
  COPUS_CHECK(again->model == manifest->model && again->plan == manifest->plan);
  COPUS_CHECK(print_manifest(*again) == printed);
}

// Adds the right checksum to the content of a manifest. A fuzzer never guesses one, and without it
// the parser stops before it reads the other fields.
void fuzz_content(std::string_view text) {
  auto json = parse_json(text, "content");
  if (!parsed(json) || !json->is_object()) return;
  json->erase("checksum");
  const auto replace = Json::error_handler_t::replace;
  const std::string sealed = json->dump(-1, ' ', false, replace);
  (*json)["checksum"] = checksum_text(xxh3_of(sealed));
  fuzz_manifest(json->dump(2, ' ', false, replace) + "\n");
}

void fuzz_part(const std::string& name) {
  const auto part = parse_part_name(name, "shard");
  if (!parsed(part)) return;
  COPUS_CHECK(!part->stripe.empty());
  COPUS_CHECK(part_name(*part) == name);
}

void fuzz_one(std::string_view input) {
  if (input.empty()) return;
  const std::string_view rest = input.substr(1);
  switch (input[0]) {
    case 's':
      return fuzz_safetensors(rest);
    case 'm':
      return fuzz_manifest(std::string(rest));
    case 'c':
      return fuzz_content(rest);
    case 'p':
      return fuzz_part(std::string(rest));
    default:
      return;
  }
}

}  // namespace
}  // namespace copus

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  copus::fuzz_one(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
