// Loads the SentencePiece module, a shared library that is installed with the program. A build
// without SentencePiece uses no_sentencepiece.cc instead.
#include <dlfcn.h>

#include "copus/base/program_file.h"
#include "copus/train/data/tokenizer.h"

namespace copus {
namespace {

struct Module {
  Tokenizer* (*open)(const char* model_path, std::string* error) = nullptr;
};

// RTLD_DEEPBIND makes the module use its own symbols before those of the program's other libraries,
// and so its own protobuf. The sanitizers do not work with this flag; the programs that they check
// have no second protobuf.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kFlags = RTLD_NOW | RTLD_LOCAL;
#else
constexpr int kFlags = RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
#endif

Result<Module> load_module() {
  const std::string path = program_file(own_program(), COPUS_SENTENCEPIECE_MODULE).string();
  void* module = dlopen(path.c_str(), kFlags);
  if (module == nullptr)
    return field_error("tokenizer", "{}; want it beside the program, or in ../lib/copus",
                       dlerror());
  Module found;
  found.open = reinterpret_cast<decltype(found.open)>(dlsym(module, "copus_open_sentencepiece"));
  if (found.open == nullptr) return field_error("tokenizer", "{}", dlerror());
  return found;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> sentencepiece_tokenizer(const std::string& model_path) {
  COPUS_TRY(const Module module, load_module());
  std::string error;
  std::unique_ptr<Tokenizer> tokenizer(module.open(model_path.c_str(), &error));
  if (!tokenizer) return Error{error};
  return tokenizer;
}

}  // namespace copus
