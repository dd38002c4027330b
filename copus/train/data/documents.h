// From text files to a token file: where documents begin, and the pass over the text.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "copus/base/result.h"
#include "copus/train/data/tokenizer.h"

namespace copus {

// A document begins with each file, and then: never, with each line that follows a blank one, or
// with each line that is not blank. A line is blank when it is empty (or only a carriage return).
// Blank lines belong to the document before them, so that no byte is lost.
enum class DocumentSplit { kNone, kBlankLine, kLine };
inline constexpr std::array kDocumentSplits = {DocumentSplit::kNone, DocumentSplit::kBlankLine,
                                               DocumentSplit::kLine};
const char* to_string(DocumentSplit split);

// Finds the documents of one file in text that comes in blocks.
class DocumentSplitter {
 public:
  explicit DocumentSplitter(DocumentSplit split) : split_(split) {}

  // How much of `text`, which follows what was given before, still belongs to the current document.
  // Less than all of it: another document begins there, with the rest as the next text to give.
  std::size_t take(std::string_view text);

 private:
  DocumentSplit split_;
  bool at_line_start_ = true;
  bool after_blank_ = false;
  bool has_text_ = false;  // the document has a line that is not blank
};

struct TokenizeOptions {
  DocumentSplit split = DocumentSplit::kNone;
  bool append_end = false;  // the tokenizer's end-of-document token after each document
  bool overwrite = false;
  // Called with the bytes read so far, now and then.
  std::function<void(std::int64_t)> progress;
};

struct TokenizeTotals {
  std::string dtype;
  std::int64_t bytes = 0;
  std::int64_t tokens = 0;
  std::int64_t documents = 0;
};

// Writes the tokens of `inputs` ("-": standard input) to prefix.bin and prefix.idx. Memory does not
// grow with the input: a document of more than a mebibyte is encoded in parts, cut after a line
// where that is possible (with bytes the tokens are the same).
Result<TokenizeTotals> tokenize_files(const std::vector<std::string>& inputs,
                                      const Tokenizer& tokenizer, const std::string& prefix,
                                      const TokenizeOptions& options);

}  // namespace copus
