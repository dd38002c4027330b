// TokenWriter: writes Megatron-LM's .bin and .idx. Its memory does not grow with the files.
//
// It writes both files under temporary names. finish() renames them, the .idx last. So an
// interrupted write never leaves a pair that opens with only a part of the tokens. Only one thread
// at a time may use a TokenWriter.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "copus/base/result.h"
#include "copus/train/data/megatron_index.h"

namespace copus {

struct TokenWriterOptions {
  std::int64_t vocab =
      256;  // decides the type: uint16 below 65500, as Megatron-LM does, else int32
  bool overwrite = false;
  // Lengths are int32, so a longer document becomes several sequences.
  std::int64_t max_sequence = std::int64_t{1} << 30U;
};

class TokenWriter {
 public:
  // `prefix`: x for x.bin and x.idx. If one of the files exists, fails unless options.overwrite.
  static Result<TokenWriter> create(const std::string& prefix, const TokenWriterOptions& options);

  TokenWriter(TokenWriter&&) noexcept;
  TokenWriter& operator=(TokenWriter&&) noexcept;
  ~TokenWriter();  // removes the temporary files; without finish(), nothing is left

  // Adds tokens to the current document.
  Result<void> add(std::span<const std::int32_t> tokens);
  // Ends the current document: the next token begins another one. Does nothing if the document has
  // no tokens.
  Result<void> end_document();
  // Ends the document and gives both files their names. REQUIRES: add(), end_document() and
  // finish() are not called afterwards.
  Result<void> finish();

  TokenType type() const;
  std::int64_t tokens() const;
  std::int64_t documents() const;

 private:
  class PendingFile;
  struct State;
  explicit TokenWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace copus
