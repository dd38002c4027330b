#include "copus/train/data/token_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "copus/base/check.h"
#include "copus/base/temporary_name.h"
#include "copus/train/data/mapped_file.h"

namespace copus {
namespace {

constexpr std::int64_t kUint16Vocab = 65500;

}  // namespace

// A file that is written under a temporary name. It is removed unless keep() renames it.
class TokenWriter::PendingFile {
 public:
  PendingFile() = default;
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;
  ~PendingFile() {
    if (file_ != nullptr) std::fclose(file_);
  }

  Result<void> create(const std::string& path) {
    path_ = path;
    TemporaryFile made = create_temporary_beside(path);
    temporary_ = std::move(made.name);
    file_ = made.fd < 0 ? nullptr : ::fdopen(made.fd, "w+b");
    if (file_ != nullptr) return {};
    const Result<void> failure = failed("create");
    if (made.fd >= 0) ::close(made.fd);
    return failure;
  }

  template <typename T>
  Result<void> write(std::span<const T> values) {
    if (std::fwrite(values.data(), sizeof(T), values.size(), file_) != values.size()) {
      return failed("write");
    }
    return {};
  }
  template <typename T>
  Result<void> write(T value) {
    return write(std::span<const T>(&value, 1));
  }
  // Reads values that were written before. A short read is an error.
  template <typename T>
  Result<void> read_at(std::int64_t offset, std::span<T> out) {
    COPUS_TRY_VOID(seek(offset));
    if (std::fread(out.data(), sizeof(T), out.size(), file_) != out.size()) return failed("read");
    return {};
  }
  Result<void> seek(std::int64_t offset) {
    if (::fseeko(file_, offset, SEEK_SET) != 0) return failed("seek in");
    return {};
  }
  // Writes the file to the disk and closes it. It still has its temporary name.
  Result<void> close() {
    const bool flushed = std::fflush(file_) == 0 && ::fsync(::fileno(file_)) == 0;
    if (!flushed) return failed("write");
    if (std::fclose(std::exchange(file_, nullptr)) != 0) return failed("write");
    return {};
  }
  Result<void> keep() {
    if (temporary_.rename_to(path_) != 0) return failed("rename to");
    return {};
  }
  const std::string& path() const { return path_; }

 private:
  Error failed(const char* what) const {
    return make_error("{}: cannot {} it: {}", path_, what, errno_text());
  }

  std::string path_;
  TemporaryName temporary_;
  std::FILE* file_ = nullptr;
};

// While tokens arrive, the writer writes only the lengths of the sequences to the .idx. At the end
// it computes the rest of the .idx from them. A sequence of the greatest length is always followed
// by another one of the same document, which may be empty. So a document ends after each sequence
// that is shorter, and the lengths alone tell where documents end.
struct TokenWriter::State {
  TokenWriterOptions options;
  TokenType type = TokenType::kUint16;
  PendingFile bin;
  PendingFile index;
  std::int64_t tokens = 0;
  std::int64_t sequences = 0;
  std::int64_t documents = 0;
  std::int64_t length = 0;  // of the current sequence, so far
  bool in_document = false;
  std::vector<std::uint16_t> narrow;

  Result<void> end_sequence() {
    ++sequences;
    return index.write(static_cast<std::int32_t>(std::exchange(length, 0)));
  }
  Result<void> write_tokens(std::span<const std::int32_t> part) {
    if (type == TokenType::kInt32) return bin.write(part);
    narrow.assign(part.begin(), part.end());
    return bin.write(std::span<const std::uint16_t>(narrow));
  }
  Result<void> write_header() {
    COPUS_TRY_VOID(index.seek(0));
    COPUS_TRY_VOID(index.write(std::span(kIndexMagic.data(), kIndexMagic.size())));
    COPUS_TRY_VOID(index.write(kIndexVersion));
    COPUS_TRY_VOID(index.write(static_cast<std::uint8_t>(type)));
    COPUS_TRY_VOID(index.write(sequences));
    return index.write(documents + 1);
  }
  Result<void> write_pointers_and_documents();
};

Result<void> TokenWriter::State::write_pointers_and_documents() {
  constexpr std::int64_t kBlock = 1 << 16;
  const std::int64_t lengths_at = kIndexHeaderBytes;
  const std::int64_t pointers_at = lengths_at + 4 * sequences;
  std::int64_t documents_at = pointers_at + 8 * sequences;
  std::int64_t pointer = 0;
  std::vector<std::int32_t> lengths;
  std::vector<std::int64_t> pointers;
  std::vector<std::int64_t> firsts = {0};
  for (std::int64_t begin = 0; begin < sequences; begin += kBlock) {
    lengths.resize(static_cast<std::size_t>(std::min(kBlock, sequences - begin)));
    COPUS_TRY_VOID(index.read_at(lengths_at + 4 * begin, std::span(lengths)));
    pointers.clear();
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      pointers.push_back(pointer);
      pointer += lengths[i] * token_bytes(type);
      if (lengths[i] < options.max_sequence) {
        firsts.push_back(begin + static_cast<std::int64_t>(i) + 1);
      }
    }
    COPUS_TRY_VOID(index.seek(pointers_at + 8 * begin));
    COPUS_TRY_VOID(index.write(std::span<const std::int64_t>(pointers)));
    COPUS_TRY_VOID(index.seek(documents_at));
    COPUS_TRY_VOID(index.write(std::span<const std::int64_t>(firsts)));
    documents_at += 8 * static_cast<std::int64_t>(firsts.size());
    firsts.clear();
  }
  return {};
}

TokenWriter::TokenWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
TokenWriter::TokenWriter(TokenWriter&&) noexcept = default;
TokenWriter& TokenWriter::operator=(TokenWriter&&) noexcept = default;
TokenWriter::~TokenWriter() = default;

TokenType TokenWriter::type() const { return state_->type; }
std::int64_t TokenWriter::tokens() const { return state_->tokens; }
std::int64_t TokenWriter::documents() const { return state_->documents; }

Result<TokenWriter> TokenWriter::create(const std::string& prefix,
                                        const TokenWriterOptions& options) {
  COPUS_CHECK(options.vocab >= 1 && options.max_sequence >= 1);
  if (prefix.empty() || prefix.ends_with('/')) {
    return field_error("output", "got \"{}\"; want a prefix, as x for x.bin and x.idx", prefix);
  }
  auto state = std::make_unique<State>();
  state->options = options;
  state->type = options.vocab < kUint16Vocab ? TokenType::kUint16 : TokenType::kInt32;
  for (const char* half : {".bin", ".idx"}) {
    std::error_code ignored;
    if (!options.overwrite && std::filesystem::exists(prefix + half, ignored)) {
      return make_error("{}{}: exists; want another output, or --force", prefix, half);
    }
  }
  COPUS_TRY_VOID(state->bin.create(prefix + ".bin"));
  COPUS_TRY_VOID(state->index.create(prefix + ".idx"));
  COPUS_TRY_VOID(state->write_header());
  return TokenWriter(std::move(state));
}

Result<void> TokenWriter::add(std::span<const std::int32_t> tokens) {
  State& s = *state_;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= s.options.vocab) {
      return make_error("{}: token {}: got {}; want 0 to {}", s.bin.path(),
                        s.tokens + static_cast<std::int64_t>(i), tokens[i], s.options.vocab - 1);
    }
  }
  while (!tokens.empty()) {
    const std::int64_t count =
        std::min(static_cast<std::int64_t>(tokens.size()), s.options.max_sequence - s.length);
    COPUS_TRY_VOID(s.write_tokens(tokens.first(static_cast<std::size_t>(count))));
    tokens = tokens.subspan(static_cast<std::size_t>(count));
    s.tokens += count;
    s.length += count;
    s.in_document = true;
    if (s.length == s.options.max_sequence) COPUS_TRY_VOID(s.end_sequence());
  }
  return {};
}

Result<void> TokenWriter::end_document() {
  if (!std::exchange(state_->in_document, false)) return {};
  ++state_->documents;
  return state_->end_sequence();
}

Result<void> TokenWriter::finish() {
  COPUS_TRY_VOID(end_document());
  State& s = *state_;
  if (s.documents == 0) return make_error("{}: got no tokens to write; want some", s.bin.path());
  COPUS_TRY_VOID(s.write_pointers_and_documents());
  COPUS_TRY_VOID(s.write_header());
  COPUS_TRY_VOID(s.bin.close());
  COPUS_TRY_VOID(s.index.close());
  // Removes an old .idx first: it must never exist beside the new .bin.
  if (::unlink(s.index.path().c_str()) != 0 && errno != ENOENT) {
    return make_error("{}: cannot replace it: {}", s.index.path(), errno_text());
  }
  COPUS_TRY_VOID(s.bin.keep());
  return s.index.keep();
}

}  // namespace copus
