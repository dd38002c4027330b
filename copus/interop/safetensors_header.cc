// Parses and prints the header of a safetensors file. The file may come from an untrusted source,
// so every number is checked before it is used.
#include <algorithm>
#include <array>
#include <limits>
#include <unordered_set>
#include <utility>

#include "copus/base/json.h"
#include "copus/base/text.h"
#include "copus/interop/safetensors.h"

namespace copus {
namespace {

constexpr std::int64_t kLengthBytes = 8;
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t kMaxDimensions = 16;

struct Dtype {
  std::string_view name;
  std::int64_t bytes;
};
constexpr std::array kDtypes = {
    Dtype{"F64", 8}, Dtype{"F32", 4}, Dtype{"F16", 2},  Dtype{"BF16", 2},    Dtype{"I64", 8},
    Dtype{"I32", 4}, Dtype{"I16", 2}, Dtype{"I8", 1},   Dtype{"U64", 8},     Dtype{"U32", 4},
    Dtype{"U16", 2}, Dtype{"U8", 1},  Dtype{"BOOL", 1}, Dtype{"F8_E4M3", 1}, Dtype{"F8_E5M2", 1}};

// Returns a name or a type as an error message shows it.
std::string shown(std::string_view text) {
  return Json(shortened(text, 60)).dump(-1, ' ', true, Json::error_handler_t::replace);
}

// Reads two integers, of which the first is not above the second.
Result<std::pair<std::int64_t, std::int64_t>> read_range(const Json& json,
                                                         const std::string& where) {
  const auto index = [](const Json& n) {
    return n.is_number_unsigned() && n.get<std::uint64_t>() <= std::uint64_t{kMost};
  };
  if (!json.is_array() || json.size() != 2 || !index(json[0]) || !index(json[1]) ||
      json[0].get<std::int64_t>() > json[1].get<std::int64_t>()) {
    return error_in(where,
                    field_error("data_offsets", "got {}; want [BEGIN, END] in bytes",
                                shown(json.dump(-1, ' ', true, Json::error_handler_t::replace))));
  }
  return std::pair{json[0].get<std::int64_t>(), json[1].get<std::int64_t>()};
}

Result<std::vector<std::int64_t>> read_shape(const Json& json, const std::string& where) {
  if (!json.is_array() || json.size() > kMaxDimensions) {
    return error_in(where,
                    field_error("shape", "got {}; want a list of at most {} sizes",
                                json.is_array() ? fmt::format("{} sizes", json.size()) : "no list",
                                kMaxDimensions));
  }
  std::vector<std::int64_t> shape;
  for (const Json& size : json) {
    if (!size.is_number_unsigned() || size.get<std::uint64_t>() > std::uint64_t{kMost}) {
      return error_in(where,
                      field_error("shape", "got {}; want sizes of 0 or more",
                                  shown(size.dump(-1, ' ', true, Json::error_handler_t::replace))));
    }
    shape.push_back(size.get<std::int64_t>());
  }
  return shape;
}

Result<SafetensorsArray> read_array(const std::string& name, const Json& json,
                                    const std::string& where) {
  SafetensorsArray array;
  array.name = name;
  FieldReader fields(json, where);
  array.dtype = fields.text("dtype");
  const Json& shape = fields.child("shape");
  const Json& range = fields.child("data_offsets");
  fields.refuse_unknown();
  COPUS_TRY_VOID(fields.finish());
  COPUS_TRY(array.shape, read_shape(shape, where));
  COPUS_TRY(const auto offsets, read_range(range, where));
  array.begin = offsets.first;
  array.end = offsets.second;
  COPUS_TRY(const std::int64_t bytes, array_bytes(array, where));
  if (bytes != array.end - array.begin) {
    return error_in(
        where, field_error("data_offsets", "got {} bytes; want {}, the size from dtype and shape",
                           array.end - array.begin, bytes));
  }
  return array;
}

Result<void> read_metadata(const Json& json, const std::string& where,
                           std::map<std::string, std::string>& metadata) {
  if (!json.is_object())
    return error_in(where, field_error("__metadata__", "want an object of strings"));
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) {
      return error_in(where, field_error("__metadata__", "{}: want a string", shown(key)));
    }
    metadata.emplace(key, value.get<std::string>());
  }
  return {};
}

// Checks that the arrays follow each other from the first byte to the last, without gaps and
// overlaps.
Result<void> check_ranges(const std::vector<SafetensorsArray>& arrays, std::int64_t data_bytes,
                          const std::string& where) {
  std::int64_t end = 0;
  for (const SafetensorsArray& array : arrays) {
    if (array.begin != end) {
      return make_error(
          "{}: {}: begins at byte {} of the data; want {}, where the array before it ends", where,
          shown(array.name), array.begin, end);
    }
    end = array.end;
  }
  if (end == data_bytes) return {};
  return make_error("{}: has {} bytes of data; want {}, where the last array ends", where,
                    data_bytes, end);
}

}  // namespace

Result<std::int64_t> array_bytes(const SafetensorsArray& array, const std::string& where) {
  const auto* const dtype = std::find_if(kDtypes.begin(), kDtypes.end(),
                                         [&](const Dtype& d) { return d.name == array.dtype; });
  if (dtype == kDtypes.end()) {
    return error_in(where,
                    field_error("dtype", "got {}; want a safetensors type such as F32, BF16 or F16",
                                shown(array.dtype)));
  }
  std::int64_t bytes = dtype->bytes;
  for (const std::int64_t size : array.shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes)) {
      return error_in(where,
                      field_error("shape", "got more bytes than a file can have; want fewer"));
    }
  }
  return bytes;
}

const SafetensorsArray* SafetensorsHeader::find(std::string_view name) const {
  const auto found = std::find_if(arrays.begin(), arrays.end(), [&](const SafetensorsArray& array) {
    return array.name == name;
  });
  return found == arrays.end() ? nullptr : &*found;
}

Result<std::int64_t> safetensors_header_bytes(std::string_view file, std::int64_t file_bytes,
                                              const std::string& where) {
  if (file_bytes < kLengthBytes || file.size() < std::size_t{kLengthBytes}) {
    return make_error("{}: got {} bytes; want a safetensors file, which has at least {}", where,
                      file_bytes, kLengthBytes);
  }
  std::uint64_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;) {
    length = length << 8U | static_cast<unsigned char>(file[i]);
  }
  if (length > kMaxJsonBytes) {
    return error_in(where,
                    field_error("header length", "got {}; want at most {}", length, kMaxJsonBytes));
  }
  const std::int64_t bytes = kLengthBytes + static_cast<std::int64_t>(length);
  if (bytes <= file_bytes) return bytes;
  return error_in(
      where, field_error("header length", "got {}; want at most {}, the rest of the file", length,
                         file_bytes - kLengthBytes));
}

Result<SafetensorsHeader> parse_safetensors_header(std::string_view file, std::int64_t file_bytes,
                                                   const std::string& where) {
  SafetensorsHeader header;
  COPUS_TRY(header.data_begin, safetensors_header_bytes(file, file_bytes, where));
  if (file.size() < static_cast<std::size_t>(header.data_begin)) {
    return make_error("{}: got the first {} bytes; want {}, the whole header", where, file.size(),
                      header.data_begin);
  }
  COPUS_TRY(const Json json,
            parse_json(file.substr(kLengthBytes,
                                   static_cast<std::size_t>(header.data_begin) - kLengthBytes),
                       where + ": header"));
  if (!json.is_object()) return error_in(where, field_error("header", "want an object of arrays"));
  for (const auto& [name, value] : json.items()) {
    if (name == "__metadata__") {
      COPUS_TRY_VOID(read_metadata(value, where, header.metadata));
      continue;
    }
    COPUS_TRY(SafetensorsArray array,
              read_array(name, value, fmt::format("{}: {}", where, shown(name))));
    header.arrays.push_back(std::move(array));
  }
  // Sort by begin, then by end: an empty array comes before the array that begins at the same byte.
  std::stable_sort(header.arrays.begin(), header.arrays.end(),
                   [](const SafetensorsArray& a, const SafetensorsArray& b) {
                     return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
                   });
  COPUS_TRY_VOID(check_ranges(header.arrays, file_bytes - header.data_begin, where));
  return header;
}

Result<std::string> print_safetensors_header(std::vector<SafetensorsArray>& arrays,
                                             const std::map<std::string, std::string>& metadata,
                                             const std::string& where) {
  std::string text = "{";
  const auto quoted = [](const std::string& s) {
    return Json(s).dump(-1, ' ', true, Json::error_handler_t::replace);
  };
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      text += fmt::format("{}:{},", quoted(key), quoted(value));
    }
    text.back() = '}';
    text += ',';
  }
  std::unordered_set<std::string_view> names{"__metadata__"};
  std::int64_t end = 0;
  for (SafetensorsArray& array : arrays) {
    if (!names.insert(array.name).second) {
      return make_error("{}: {}: got the array twice; want each name once", where,
                        shown(array.name));
    }
    COPUS_TRY(const std::int64_t bytes,
              array_bytes(array, fmt::format("{}: {}", where, array.name)));
    array.begin = end;
    if (__builtin_add_overflow(end, bytes, &end)) {
      return make_error("{}: got more bytes than a file can have; want fewer", where);
    }
    array.end = end;
    text += fmt::format("{}:{{\"dtype\":{},\"shape\":{},\"data_offsets\":[{},{}]}},",
                        quoted(array.name), quoted(array.dtype), Json(array.shape).dump(),
                        array.begin, array.end);
  }
  if (text.back() == ',') text.pop_back();
  text += '}';
  // Pad the header, so that the data begins at a multiple of 8 bytes, which suits every type.
  text.resize((text.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes, ' ');
  if (text.size() > kMaxJsonBytes) {
    return error_in(where, field_error("header", "got {} bytes ({} arrays); want at most {}",
                                       text.size(), arrays.size(), kMaxJsonBytes));
  }
  std::string file;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    file += static_cast<char>(text.size() >> (8 * i) & 0xffU);
  }
  return file + text;
}

}  // namespace copus
