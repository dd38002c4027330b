#include "copus/train/data/token_file.h"

#include <cstring>
#include <filesystem>
#include <utility>

#include "copus/base/check.h"
#include "copus/train/data/mapped_file.h"
#include "copus/train/data/megatron_index.h"

namespace copus {

struct TokenFile::Mapping {
  std::string name;
  MappedFile file;
  std::string text;  // the tokens of from_bytes(), which has no file
  std::span<const std::byte> bytes;
  IndexSummary summary;
};

namespace {

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

template <typename T>
void widen(const std::byte* from, std::span<std::int64_t> out) {
  for (std::int64_t& token : out) {
    T value;
    std::memcpy(&value, from, sizeof value);
    from += sizeof value;
    token = value;  // NOLINT(bugprone-signed-char-misuse): int8 tokens are numbers
  }
}

// Checks that both files of the pair exist. The error names the missing one.
Result<void> check_pair(const std::string& prefix) {
  for (const auto& [half, other] : {std::pair(".bin", ".idx"), std::pair(".idx", ".bin")}) {
    if (!exists(prefix + half)) {
      return make_error("{0}{1}: not found; want Megatron-LM's pair {0}{1} and {0}{2}", prefix,
                        half, other);
    }
  }
  return {};
}

}  // namespace

TokenFile::TokenFile(std::shared_ptr<const Mapping> mapping) : mapping_(std::move(mapping)) {}

Result<TokenFile> TokenFile::open(const std::string& path) {
  auto mapping = std::make_shared<Mapping>();
  const std::string prefix = token_file_prefix(path);
  const bool named = prefix != path;
  const bool has_half = exists(prefix + ".bin") || exists(prefix + ".idx");
  if (named || (exists(prefix + ".bin") && exists(prefix + ".idx")) ||
      (has_half && !exists(path))) {
    COPUS_TRY_VOID(check_pair(prefix));
    mapping->name = prefix + ".bin";
    COPUS_TRY(const MappedFile index, MappedFile::open(prefix + ".idx"));
    COPUS_TRY(mapping->file, MappedFile::open(mapping->name));
    mapping->bytes = mapping->file.bytes();
    COPUS_TRY(mapping->summary,
              check_index(index.bytes(), prefix + ".idx",
                          static_cast<std::int64_t>(mapping->bytes.size()), mapping->name));
  } else {
    mapping->name = path;
    COPUS_TRY(mapping->file, MappedFile::open(path));
    mapping->bytes = mapping->file.bytes();
    mapping->summary = {TokenType::kUint8, static_cast<std::int64_t>(mapping->bytes.size()), 1};
  }
  return TokenFile(std::move(mapping));
}

TokenFile TokenFile::from_bytes(std::string bytes, std::string name) {
  auto mapping = std::make_shared<Mapping>();
  mapping->name = std::move(name);
  mapping->text = std::move(bytes);
  mapping->bytes = std::as_bytes(std::span(mapping->text));
  mapping->summary = {TokenType::kUint8, static_cast<std::int64_t>(mapping->bytes.size()), 1};
  return TokenFile(std::move(mapping));
}

const std::string& TokenFile::name() const { return mapping_->name; }
std::int64_t TokenFile::size() const { return mapping_->summary.tokens; }
std::int64_t TokenFile::documents() const { return mapping_->summary.documents; }
std::string_view TokenFile::dtype() const { return token_type_name(mapping_->summary.type); }

void TokenFile::read(std::int64_t begin, std::span<std::int64_t> out) const {
  COPUS_CHECK(begin >= 0 && begin <= size());
  COPUS_CHECK(static_cast<std::int64_t>(out.size()) <= size() - begin);
  const TokenType type = mapping_->summary.type;
  const std::byte* from = mapping_->bytes.data() + begin * token_bytes(type);
  switch (type) {
    case TokenType::kUint8:
      return widen<std::uint8_t>(from, out);
    case TokenType::kInt8:
      return widen<std::int8_t>(from, out);
    case TokenType::kInt16:
      return widen<std::int16_t>(from, out);
    case TokenType::kUint16:
      return widen<std::uint16_t>(from, out);
    case TokenType::kInt32:
      return widen<std::int32_t>(from, out);
    case TokenType::kInt64:
      return widen<std::int64_t>(from, out);
  }
}

}  // namespace copus
