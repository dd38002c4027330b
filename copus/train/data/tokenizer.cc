#include "copus/train/data/tokenizer.h"

namespace copus {
namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  std::int64_t vocab() const override { return 256; }
  std::optional<std::int32_t> end_of_document() const override { return 0; }
  Result<void> encode(std::string_view text, std::vector<std::int32_t>& out) const override {
    out.resize(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) out[i] = static_cast<unsigned char>(text[i]);
    return {};
  }
  Result<std::string> decode(std::span<const std::int32_t> tokens) const override {
    std::string text;
    text.reserve(tokens.size());
    for (const std::int32_t token : tokens) text += static_cast<char>(token);
    return text;
  }
};

}  // namespace

std::unique_ptr<Tokenizer> byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

Result<std::unique_ptr<Tokenizer>> load_tokenizer(const std::string& name) {
  if (name == "bytes") return byte_tokenizer();
  if (name.find('.') == std::string::npos && name.find('/') == std::string::npos) {
    return field_error("tokenizer", "got {}; want bytes, or the path of a SentencePiece .model",
                       name);
  }
  return sentencepiece_tokenizer(name);
}

}  // namespace copus
