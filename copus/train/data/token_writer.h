// TokenWriter: writes Megatron-LM's .bin and .idx, in memory that does not grow with them.
//
// Both are written under temporary names and renamed by finish(), the .idx last: whatever is
// interrupted leaves no pair that opens with half of the tokens. One thread at a time.
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
  // Lengths are int32, so that a longer document becomes several sequences.
  std::int64_t max_sequence = std::int64_t{1} << 30U;
};

class TokenWriter {
 public:
  // `prefix` as in x.bin and x.idx. Refuses to replace either unless told to.
  static Result<TokenWriter> create(const std::string& prefix, const TokenWriterOptions& options);

  TokenWriter(TokenWriter&&) noexcept;
  TokenWriter& operator=(TokenWriter&&) noexcept;
  ~TokenWriter();  // without finish(): nothing is left

  // Adds tokens to the current document.
  Result<void> add(std::span<const std::int32_t> tokens);
  // The next token begins another document. A document without tokens is none.
  Result<void> end_document();
  // Ends the document and makes the pair visible. REQUIRES: nothing is called after it.
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
