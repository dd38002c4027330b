// Safetensors: named arrays in one file. Eight bytes of header length (little endian), a JSON
// header, the arrays' bytes. Every number of a header is checked before anything is read by it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "copus/base/result.h"

namespace copus {

struct SafetensorsArray {
  std::string name;
  std::string dtype = "F32";  // as the format writes it: F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL …
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0, end = 0;  // bytes, counted from the end of the header
};

struct SafetensorsHeader {
  std::vector<SafetensorsArray> arrays;  // by begin
  std::map<std::string, std::string> metadata;
  std::int64_t data_begin = 0;  // of the file, in bytes

  const SafetensorsArray* find(std::string_view name) const;  // null: none
};

// `file`: the file's first bytes, as many as the header needs or more; `file_bytes`: its whole
// size. Refuses lengths past the end, overlaps, gaps, trailing bytes, doubled names, unknown types,
// shapes whose size is not the range's. `where` names the file in errors.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view file, std::int64_t file_bytes,
                                                   const std::string& where);

// The header's bytes and the eight before it, from the file's first eight. Checked alike.
Result<std::int64_t> safetensors_header_bytes(std::string_view file, std::int64_t file_bytes,
                                              const std::string& where);

// Bytes that dtype and shape ask for.
Result<std::int64_t> array_bytes(const SafetensorsArray& array, const std::string& where);

// What a file of these arrays begins with, up to the first array's first byte. Sets their begin and
// end, one after the other.
Result<std::string> print_safetensors_header(std::vector<SafetensorsArray>& arrays,
                                             const std::map<std::string, std::string>& metadata,
                                             const std::string& where);

class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::string& path);
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;
  ~SafetensorsFile();

  const std::string& path() const { return path_; }
  const SafetensorsHeader& header() const { return header_; }
  // Bytes [offset, offset + out.size()) of an array. Any thread.
  Result<void> read(const SafetensorsArray& array, std::int64_t offset,
                    std::span<std::byte> out) const;

 private:
  SafetensorsFile() = default;
  std::string path_;
  int fd_ = -1;
  SafetensorsHeader header_;
};

// Writes arrays one after the other. The file is whole, and on disk, when finish() has returned;
// without that it is removed with the writer.
class SafetensorsWriter {
 public:
  // `arrays`: in file order; begin and end are set here from dtype and shape.
  static Result<SafetensorsWriter> create(const std::string& path,
                                          std::vector<SafetensorsArray> arrays,
                                          const std::map<std::string, std::string>& metadata);
  SafetensorsWriter(SafetensorsWriter&&) noexcept;
  SafetensorsWriter& operator=(SafetensorsWriter&&) noexcept;
  ~SafetensorsWriter();

  // The next bytes of the data, across arrays as they come.
  Result<void> write(std::span<const std::byte> bytes);
  struct Written {
    std::int64_t bytes = 0;  // of the file
    std::uint64_t xxh3 = 0;  // of all of them
  };
  // fsync and close. An error where fewer bytes were written than the arrays have.
  Result<Written> finish();

 private:
  struct State;
  explicit SafetensorsWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace copus
