// Tokenizer: text to tokens. Two kinds: bytes, and SentencePiece models.
//
// Immutable: any number of threads may use one.
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
  // The token that ends a document; none where the model has none.
  virtual std::optional<std::int32_t> end_of_document() const = 0;
  // Replaces `out` by the tokens of `text`.
  virtual Result<void> encode(std::string_view text, std::vector<std::int32_t>& out) const = 0;
  // REQUIRES: every token is in [0, vocab()).
  virtual Result<std::string> decode(std::span<const std::int32_t> tokens) const = 0;
};

// A token per byte. Documents end in 0, a byte that text does not contain.
std::unique_ptr<Tokenizer> byte_tokenizer();

// Of a .model file. Where Copus was built without SentencePiece: an error that says so.
Result<std::unique_ptr<Tokenizer>> sentencepiece_tokenizer(const std::string& model_path);

// "bytes", or the path of a SentencePiece model.
Result<std::unique_ptr<Tokenizer>> load_tokenizer(const std::string& name);

}  // namespace copus
