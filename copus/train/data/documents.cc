#include "copus/train/data/documents.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "copus/train/data/mapped_file.h"
#include "copus/train/data/token_writer.h"

namespace copus {
namespace {

constexpr std::size_t kBlock = std::size_t{1} << 20U;

// Returns where to cut text that is too long to encode at once: after its last line, or if it has
// none after its last word, or else after its last whole character.
std::size_t cut_point(std::string_view text) {
  if (const auto line = text.rfind('\n'); line != std::string_view::npos) return line + 1;
  if (const auto space = text.rfind(' '); space != std::string_view::npos && space > 0) {
    return space;
  }
  std::size_t end = text.size();
  const auto continues = [&](std::size_t i) {
    return (static_cast<unsigned char>(text[i]) & 0xC0U) == 0x80U;
  };
  constexpr std::size_t kLongestCharacter = 4;
  while (end > 1 && text.size() - end < kLongestCharacter && continues(end - 1)) --end;
  return end > 1 ? end - 1 : text.size();
}

// Collects a document's text, encodes it in parts and writes the tokens.
class Encoder {
 public:
  Encoder(const Tokenizer& tokenizer, TokenWriter& writer, std::optional<std::int32_t> end)
      : tokenizer_(tokenizer), writer_(writer), end_(end) {}

  Result<void> add(std::string_view text) {
    pending_.append(text);
    if (pending_.size() < kBlock) return {};
    return encode(cut_point(pending_));
  }

  Result<void> end_document() {
    if (!pending_.empty()) COPUS_TRY_VOID(encode(pending_.size()));
    if (!std::exchange(has_tokens_, false)) return {};
    if (end_) COPUS_TRY_VOID(writer_.add(std::span(&*end_, 1)));
    return writer_.end_document();
  }

 private:
  Result<void> encode(std::size_t size) {
    COPUS_TRY_VOID(tokenizer_.encode(std::string_view(pending_).substr(0, size), tokens_));
    pending_.erase(0, size);
    has_tokens_ = has_tokens_ || !tokens_.empty();
    return writer_.add(tokens_);
  }

  const Tokenizer& tokenizer_;
  TokenWriter& writer_;
  std::optional<std::int32_t> end_;
  std::string pending_;
  bool has_tokens_ = false;  // the current document has tokens
  std::vector<std::int32_t> tokens_;
};

struct CloseFile {
  void operator()(std::FILE* file) const {
    if (file != stdin) std::fclose(file);
  }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

Result<File> open_input(const std::string& path) {
  if (path == "-") return File(stdin);
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return make_error("{}: got a folder; want a file of text", path);
  }
  File file(std::fopen(path.c_str(), "rbe"));
  if (!file) return make_error("{}: cannot open: {}", path, errno_text());
  return file;
}

}  // namespace

const char* to_string(DocumentSplit split) {
  return split == DocumentSplit::kNone        ? "none"
         : split == DocumentSplit::kBlankLine ? "blank-line"
                                              : "line";
}

std::size_t DocumentSplitter::take(std::string_view text) {
  if (split_ == DocumentSplit::kNone) return text.size();
  std::size_t position = 0;
  while (position < text.size()) {
    if (at_line_start_) {
      const bool blank = text[position] == '\n' || text[position] == '\r';
      if (!blank && has_text_ && (split_ == DocumentSplit::kLine || after_blank_)) {
        has_text_ = false;
        return position;
      }
      has_text_ = has_text_ || !blank;
      after_blank_ = blank;
      at_line_start_ = false;
    }
    const std::size_t line_end = text.find('\n', position);
    if (line_end == std::string_view::npos) return text.size();
    position = line_end + 1;
    at_line_start_ = true;
  }
  return text.size();
}

Result<TokenizeTotals> tokenize_files(const std::vector<std::string>& inputs,
                                      const Tokenizer& tokenizer, const std::string& prefix,
                                      const TokenizeOptions& options) {
  std::optional<std::int32_t> end;
  if (options.append_end) {
    end = tokenizer.end_of_document();
    if (!end) return field_error("--append-eod", "the tokenizer has no end-of-document token");
  }
  TokenWriterOptions writer_options;
  writer_options.vocab = tokenizer.vocab();
  writer_options.overwrite = options.overwrite;
  COPUS_TRY(TokenWriter writer, TokenWriter::create(prefix, writer_options));
  Encoder encoder(tokenizer, writer, end);
  TokenizeTotals totals;
  std::string block(kBlock, '\0');
  for (const std::string& input : inputs) {
    COPUS_TRY(const File file, open_input(input));
    DocumentSplitter splitter(options.split);
    for (;;) {
      const std::size_t got = std::fread(block.data(), 1, block.size(), file.get());
      if (got == 0) break;
      totals.bytes += static_cast<std::int64_t>(got);
      std::string_view text(block.data(), got);
      while (!text.empty()) {
        const std::size_t taken = splitter.take(text);
        COPUS_TRY_VOID(encoder.add(text.substr(0, taken)));
        if (taken < text.size()) COPUS_TRY_VOID(encoder.end_document());
        text.remove_prefix(taken);
      }
      if (options.progress) options.progress(totals.bytes);
    }
    if (std::ferror(file.get()) != 0) return make_error("{}: cannot read: {}", input, errno_text());
    COPUS_TRY_VOID(encoder.end_document());
  }
  COPUS_TRY_VOID(writer.finish());
  totals.dtype = token_type_name(writer.type());
  totals.tokens = writer.tokens();
  totals.documents = writer.documents();
  return totals;
}

}  // namespace copus
