// Tokenizer: turns text into tokens and back. There are two kinds: bytes, and SentencePiece models.
//
// Immutable, so any number of threads may use one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "copus/base/result.h"

namespace copus {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::int64_t vocab() const = 0;
  // Returns the token that ends a document; empty if the model has no such token.
  virtual std::optional<std::int32_t> end_of_document() const = 0;
  // Replaces `out` by the tokens of `text`.
  virtual Result<void> encode(std::string_view text, std::vector<std::int32_t>& out) const = 0;
  // REQUIRES: every token is in [0, vocab()).
  virtual Result<std::string> decode(std::span<const std::int32_t> tokens) const = 0;
};

// Makes a tokenizer with one token per byte. Its end-of-document token is 0, a byte that text does
// not contain.
std::unique_ptr<Tokenizer> byte_tokenizer();

// Opens a .model file. If Copus was built without SentencePiece, returns an error that says so.
Result<std::unique_ptr<Tokenizer>> sentencepiece_tokenizer(const std::string& model_path);

// Returns the tokenizer named "bytes", or that of a SentencePiece model by its path.
Result<std::unique_ptr<Tokenizer>> load_tokenizer(const std::string& name);

}  // namespace copus
