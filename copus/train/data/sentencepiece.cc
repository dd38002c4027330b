// A Tokenizer that uses SentencePiece. It is in a module of its own (libcopus_sentencepiece.so),
// which sentencepiece_module.cc loads when a model is named: libsentencepiece contains a copy of
// protobuf, whose symbols must not mix with those of libtorch's copy.
#include <sentencepiece_processor.h>

#include <utility>

#include "copus/train/data/mapped_file.h"
#include "copus/train/data/tokenizer.h"

namespace copus {
namespace {

class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(std::unique_ptr<sentencepiece::SentencePieceProcessor> processor)
      : processor_(std::move(processor)) {}

  std::int64_t vocab() const override { return processor_->GetPieceSize(); }
  std::optional<std::int32_t> end_of_document() const override {
    const int id = processor_->eos_id();
    if (id < 0) return std::nullopt;
    return id;
  }
  Result<void> encode(std::string_view text, std::vector<std::int32_t>& out) const override {
    const auto status = processor_->Encode({text.data(), text.size()}, &out);
    if (!status.ok()) return field_error("tokenizer", "cannot encode: {}", status.message());
    return {};
  }
  Result<std::string> decode(std::span<const std::int32_t> tokens) const override {
    std::string text;
    const auto status = processor_->Decode(std::vector<int>(tokens.begin(), tokens.end()), &text);
    if (!status.ok()) return field_error("tokenizer", "cannot decode: {}", status.message());
    return text;
  }

 private:
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
};

Result<std::unique_ptr<Tokenizer>> open_model(const std::string& model_path) {
  COPUS_TRY(const MappedFile file, MappedFile::open(model_path));
  const std::span<const std::byte> bytes = file.bytes();
  auto processor = std::make_unique<sentencepiece::SentencePieceProcessor>();
  const auto status = processor->LoadFromSerializedProto(
      {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!status.ok() || processor->GetPieceSize() < 1) {
    return make_error("{}: got something else; want a SentencePiece model", model_path);
  }
  std::unique_ptr<Tokenizer> tokenizer =
      std::make_unique<SentencePieceTokenizer>(std::move(processor));
  return tokenizer;
}

}  // namespace
}  // namespace copus

// The only symbol that the module exports. Returns null on failure; then `error` says why.
extern "C" copus::Tokenizer* copus_open_sentencepiece(const char* model_path, std::string* error) {
  auto tokenizer = copus::open_model(model_path);
  if (tokenizer) return std::move(tokenizer).value().release();
  *error = tokenizer.error().message;
  return nullptr;
}
