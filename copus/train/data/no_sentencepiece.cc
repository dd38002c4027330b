// Replaces sentencepiece_module.cc in a build without the SentencePiece library.
#include "copus/train/data/tokenizer.h"

namespace copus {

Result<std::unique_ptr<Tokenizer>> sentencepiece_tokenizer(const std::string& model_path) {
  return field_error("tokenizer",
                     "got {}; this build has no SentencePiece: want bytes, or build again with "
                     "libsentencepiece-dev installed",
                     model_path);
}

}  // namespace copus
