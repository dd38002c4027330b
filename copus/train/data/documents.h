// Turns text files into a token file, and finds where documents begin.
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

// Where documents begin inside a file: nowhere (kNone), at each line that follows a blank line
// (kBlankLine), or at each line that is not blank (kLine). Each file begins a document as well. A
// line is blank if it is empty or only a carriage return. Blank lines belong to the document before
// them, so that no byte is lost.
enum class DocumentSplit { kNone, kBlankLine, kLine };
inline constexpr std::array kDocumentSplits = {DocumentSplit::kNone, DocumentSplit::kBlankLine,
                                               DocumentSplit::kLine};
const char* to_string(DocumentSplit split);

// Finds the documents of one file in text that comes in blocks.
class DocumentSplitter {
 public:
  explicit DocumentSplitter(DocumentSplit split) : split_(split) {}

  // Returns how many bytes of `text` belong to the current document. `text` continues the text of
  // the call before. If the result is less than the size of `text`, another document begins there;
  // the next call gets the rest.
  std::size_t take(std::string_view text);

 private:
  DocumentSplit split_;
  bool at_line_start_ = true;
  bool after_blank_ = false;
  bool has_text_ = false;  // the document has a line that is not blank
};

struct TokenizeOptions {
  DocumentSplit split = DocumentSplit::kNone;
  bool append_end = false;  // append the tokenizer's end-of-document token to each document
  bool overwrite = false;
  // Called from time to time with the number of bytes read so far.
  std::function<void(std::int64_t)> progress;
};

struct TokenizeTotals {
  std::string dtype;
  std::int64_t bytes = 0;
  std::int64_t tokens = 0;
  std::int64_t documents = 0;
};

// Writes the tokens of `inputs` ("-": standard input) to prefix.bin and prefix.idx. Memory does not
// grow with the input: a document of more than a mebibyte is encoded in parts, which are cut after
// a line if possible. For the tokenizer "bytes" this makes no difference to the tokens.
Result<TokenizeTotals> tokenize_files(const std::vector<std::string>& inputs,
                                      const Tokenizer& tokenizer, const std::string& prefix,
                                      const TokenizeOptions& options);

}  // namespace copus
