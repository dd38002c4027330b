// Reads and writes safetensors files: named arrays in one file. A file consists of eight bytes with
// the length of the header (little endian), a JSON header, and the bytes of the arrays. The reader
// checks every number of the header before it uses it.
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
  std::string dtype = "F32";  // the format's name: F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL …
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0, end = 0;  // bytes, counted from the end of the header
};

struct SafetensorsHeader {
  std::vector<SafetensorsArray> arrays;  // ordered by begin
  std::map<std::string, std::string> metadata;
  std::int64_t data_begin = 0;  // bytes from the start of the file to the first array

  const SafetensorsArray* find(std::string_view name) const;  // null: no such array
};

// Parses a header. `file` holds the first bytes of the file, at least the whole header.
// `file_bytes` is the size of the whole file. Refuses lengths past the end of the file, overlaps,
// gaps, trailing bytes, a name that occurs twice, unknown types, and shapes whose size differs from
// the byte range. `where` names the file in error messages.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view file, std::int64_t file_bytes,
                                                   const std::string& where);

// Returns the size of the header, including the eight bytes of its length. Needs only the first
// eight bytes of the file. Checks the length as parse_safetensors_header() does.
Result<std::int64_t> safetensors_header_bytes(std::string_view file, std::int64_t file_bytes,
                                              const std::string& where);

// Returns the size of the array in bytes, from its dtype and shape.
Result<std::int64_t> array_bytes(const SafetensorsArray& array, const std::string& where);

// Returns everything that comes before the bytes of the first array in a file of these arrays. Sets
// begin and end of each array, so that the arrays follow each other without gaps.
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
  // Reads bytes [offset, offset + out.size()) of an array. Thread-safe.
  Result<void> read(const SafetensorsArray& array, std::int64_t offset,
                    std::span<std::byte> out) const;

 private:
  SafetensorsFile() = default;
  std::string path_;
  int fd_ = -1;
  SafetensorsHeader header_;
};

// Writes arrays one after the other. When finish() has succeeded, the file is complete and on disk.
// Without a finish() that succeeds, the writer removes the file at the latest in its destructor.
class SafetensorsWriter {
 public:
  // `arrays` are in file order. create() sets their begin and end from dtype and shape.
  static Result<SafetensorsWriter> create(const std::string& path,
                                          std::vector<SafetensorsArray> arrays,
                                          const std::map<std::string, std::string>& metadata);
  SafetensorsWriter(SafetensorsWriter&&) noexcept;
  SafetensorsWriter& operator=(SafetensorsWriter&&) noexcept;
  ~SafetensorsWriter();

  // Writes the next bytes of the data. One call may write parts of several arrays.
  Result<void> write(std::span<const std::byte> bytes);
  struct Written {
    std::int64_t bytes = 0;  // size of the file
    std::uint64_t xxh3 = 0;  // checksum of the whole file
  };
  // Syncs and closes the file. Fails if fewer bytes were written than the arrays have.
  Result<Written> finish();

 private:
  struct State;
  explicit SafetensorsWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace copus
