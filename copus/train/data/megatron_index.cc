#include "copus/train/data/megatron_index.h"

#include <bit>
#include <cstring>

namespace copus {

static_assert(std::endian::native == std::endian::little,
              "token files are little-endian and are read without conversion");

namespace {

// Reads the fields of an index. None of them is aligned in memory.
struct Fields {
  std::span<const std::byte> bytes;
  std::uint64_t sequences = 0;
  std::uint64_t document_indices = 0;

  template <typename T>
  T at(std::uint64_t offset) const {
    T value;
    std::memcpy(&value, bytes.data() + offset, sizeof value);
    return value;
  }
  std::int32_t length(std::uint64_t sequence) const {
    return at<std::int32_t>(kIndexHeaderBytes + 4 * sequence);
  }
  std::int64_t pointer(std::uint64_t sequence) const {
    return at<std::int64_t>(kIndexHeaderBytes + 4 * sequences + 8 * sequence);
  }
  std::int64_t document(std::uint64_t i) const {
    return at<std::int64_t>(kIndexHeaderBytes + 12 * sequences + 8 * i);
  }
};

Result<TokenType> token_type(std::uint8_t code, const std::string& name) {
  switch (static_cast<TokenType>(code)) {
    case TokenType::kUint8:
    case TokenType::kInt8:
    case TokenType::kInt16:
    case TokenType::kInt32:
    case TokenType::kInt64:
    case TokenType::kUint16:
      return static_cast<TokenType>(code);
  }
  return error_in(
      name,
      field_error("dtype",
                  "got {}; want 1 (uint8), 2 (int8), 3 (int16), 4 (int32), 5 (int64) or 8 (uint16)",
                  code));
}

Result<Fields> check_counts(std::span<const std::byte> index, const std::string& name) {
  Fields fields{index};
  fields.sequences = fields.at<std::uint64_t>(18);
  fields.document_indices = fields.at<std::uint64_t>(26);
  // Bounds both counts before they are multiplied, so that the products cannot overflow.
  const std::uint64_t rest = index.size() - kIndexHeaderBytes;
  if (fields.sequences == 0 || fields.sequences > rest / 12) {
    return error_in(name,
                    field_error("sequence count", "got {}; want 1 to {} in a file of {} bytes",
                                fields.sequences, rest / 12, index.size()));
  }
  if (fields.document_indices < 2 || fields.document_indices > rest / 8) {
    return error_in(name,
                    field_error("document count", "got {}; want 2 to {} in a file of {} bytes",
                                fields.document_indices, rest / 8, index.size()));
  }
  const std::uint64_t want =
      kIndexHeaderBytes + 12 * fields.sequences + 8 * fields.document_indices;
  if (index.size() != want && index.size() != want + fields.sequences) {
    return make_error("{}: got {} bytes; want {} for {} sequences and {} document indices", name,
                      index.size(), want, fields.sequences, fields.document_indices);
  }
  return fields;
}

// Checks the lengths and pointers of all sequences, and returns the number of tokens.
Result<std::int64_t> check_sequences(const Fields& fields, const std::string& name,
                                     std::int64_t width, std::int64_t bin_bytes,
                                     const std::string& bin_name) {
  const std::int64_t room = bin_bytes / width;
  std::int64_t tokens = 0;
  for (std::uint64_t i = 0; i < fields.sequences; ++i) {
    const std::int32_t length = fields.length(i);
    if (length < 0) {
      return make_error("{}: length of sequence {}: got {}; want 0 or more", name, i, length);
    }
    if (const std::int64_t pointer = fields.pointer(i); pointer != tokens * width) {
      return make_error("{}: pointer of sequence {}: got {}; want {}, where the one before it ends",
                        name, i, pointer, tokens * width);
    }
    if (length > room - tokens) {
      return make_error("{}: length of sequence {}: got {}; want at most {}, the rest of {}", name,
                        i, length, room - tokens, bin_name);
    }
    tokens += length;
  }
  if (bin_bytes != tokens * width) {
    return make_error("{}: got {} bytes; want {}, as {} says", bin_name, bin_bytes, tokens * width,
                      name);
  }
  return tokens;
}

Result<void> check_documents(const Fields& fields, const std::string& name) {
  std::int64_t before = 0;
  for (std::uint64_t i = 0; i < fields.document_indices; ++i) {
    const std::int64_t first = fields.document(i);
    const auto sequences = static_cast<std::int64_t>(fields.sequences);
    const std::int64_t low = i + 1 == fields.document_indices ? sequences : before;
    const std::int64_t high = i == 0 ? 0 : sequences;
    if (first < low || first > high) {
      return make_error("{}: document index {}: got {}; want {} to {}", name, i, first, low, high);
    }
    before = first;
  }
  return {};
}

}  // namespace

std::string_view token_type_name(TokenType type) {
  switch (type) {
    case TokenType::kUint8:
      return "uint8";
    case TokenType::kInt8:
      return "int8";
    case TokenType::kInt16:
      return "int16";
    case TokenType::kInt32:
      return "int32";
    case TokenType::kInt64:
      return "int64";
    case TokenType::kUint16:
      return "uint16";
  }
  return "?";
}

std::int64_t token_bytes(TokenType type) {
  switch (type) {
    case TokenType::kUint8:
    case TokenType::kInt8:
      return 1;
    case TokenType::kInt16:
    case TokenType::kUint16:
      return 2;
    case TokenType::kInt32:
      return 4;
    case TokenType::kInt64:
      return 8;
  }
  return 1;
}

Result<IndexSummary> check_index(std::span<const std::byte> index, const std::string& index_name,
                                 std::int64_t bin_bytes, const std::string& bin_name) {
  if (index.size() < kIndexHeaderBytes) {
    return make_error("{}: is cut short at {} of the {} bytes of Megatron-LM's header", index_name,
                      index.size(), kIndexHeaderBytes);
  }
  if (std::memcmp(index.data(), kIndexMagic.data(), kIndexMagic.size()) != 0) {
    return error_in(index_name,
                    field_error("magic", "got other bytes; want MMIDIDX, Megatron-LM's index"));
  }
  const Fields header{index};
  if (const auto version = header.at<std::uint64_t>(9); version != kIndexVersion) {
    return error_in(index_name, field_error("version", "got {}; want {}", version, kIndexVersion));
  }
  IndexSummary summary;
  COPUS_TRY(summary.type, token_type(header.at<std::uint8_t>(17), index_name));
  COPUS_TRY(const Fields fields, check_counts(index, index_name));
  COPUS_TRY(summary.tokens,
            check_sequences(fields, index_name, token_bytes(summary.type), bin_bytes, bin_name));
  COPUS_TRY_VOID(check_documents(fields, index_name));
  summary.documents = static_cast<std::int64_t>(fields.document_indices) - 1;
  return summary;
}

std::string token_file_prefix(const std::string& path) {
  const bool is_pair = path.ends_with(".bin") || path.ends_with(".idx");
  return is_pair ? path.substr(0, path.size() - 4) : path;
}

}  // namespace copus
