// copus data: converts text to token files, writes the builtin corpus, and inspects token files.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "apps/copus/args/shared_options.h"
#include "apps/copus/byte_progress.h"
#include "apps/copus/command_line.h"
#include "apps/copus/commands.h"
#include "apps/copus/common.h"
#include "copus/base/temporary_name.h"
#include "copus/base/text.h"
#include "copus/base/to_stderr.h"
#include "copus/train/data/builtin_corpus.h"
#include "copus/train/data/documents.h"
#include "copus/train/data/megatron_index.h"
#include "copus/train/data/token_file.h"
#include "copus/train/data/tokenizer.h"

namespace copus {
namespace {

constexpr std::int64_t kMaxBuiltinBytes = std::int64_t{1} << 30U;

struct DataArgs : OptionGroup {
  Option<std::vector<std::string>> inputs{this, "--input", list_of(text("FILE")),
                                          "text files, in this order; - is standard input"};
  Option<std::int64_t> builtin{this, "--builtin", integer(1, kMaxBuiltinBytes),
                               "write this many bytes of the builtin corpus"};
  Option<std::string> inspect{
      this, "--inspect", text("FILE"),
      "print type, number of tokens and documents, and the first tokens of a token file or text"};
  Option<std::string> output{
      this, "--output", text("PREFIX|FILE"),
      "prefix of the .bin and .idx to write; with --builtin, the file (- to print)",
      Otherwise{"required to write"}};
  Option<std::string> tokenizer{this, "--tokenizer", text("bytes|FILE"),
                                "bytes, or the path of a SentencePiece model", "bytes"};
  Option<DocumentSplit> split{this, "--split-documents", one_of(kDocumentSplits),
                              "where a file is split into documents", DocumentSplit::kNone};
  Option<bool> append_eod{this, "--append-eod", flag(),
                          "end each document with the tokenizer's end token (for bytes: 0)", false};
  Option<bool> force{this, "--force", flag(), "replace the output if it exists", false};
  JsonOption json{this};
};

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// Returns the size of all inputs together in bytes; 0 if it is not known, as for standard input. A
// file that cannot be read also gives 0 here: the conversion reports its error.
double total_size(const std::vector<std::string>& inputs) {
  double total = 0;
  for (const std::string& input : inputs) {
    std::error_code failed;
    const auto size = std::filesystem::file_size(input, failed);
    if (failed) return 0;
    total += static_cast<double>(size);
  }
  return total;
}

int run_tokenize(const DataArgs& args) {
  const Result<std::unique_ptr<Tokenizer>> tokenizer = load_tokenizer(*args.tokenizer);
  if (!tokenizer) return report(tokenizer.error());
  const std::string prefix = token_file_prefix(*args.output);
  ByteProgress progress(total_size(*args.inputs));
  TokenizeOptions options;
  options.split = *args.split;
  options.append_end = *args.append_eod;
  options.overwrite = *args.force;
  options.progress = [&](std::int64_t bytes) { progress(bytes); };
  const Result<TokenizeTotals> totals = tokenize_files(*args.inputs, **tokenizer, prefix, options);
  progress.clear();
  if (!totals) return report(totals.error());
  if (*args.split == DocumentSplit::kBlankLine &&
      totals->documents <= static_cast<std::int64_t>(args.inputs->size())) {
    to_stderr(
        "copus: --split-documents: found no blank line to split at; a blank line is empty, without "
        "spaces\n");
  }
  if (*args.json) {
    Json json;
    json["output"] = prefix;
    json["tokenizer"] = *args.tokenizer;
    json["vocab"] = (*tokenizer)->vocab();
    json["dtype"] = totals->dtype;
    json["text_bytes"] = totals->bytes;
    json["tokens"] = totals->tokens;
    json["documents"] = totals->documents;
    fmt::print("{}\n", json.dump(2));
  } else {
    fmt::print("{0}.bin and {0}.idx: {1} of {2} in {3}, vocabulary {4}\n", prefix,
               counted(totals->tokens, "token"), totals->dtype,
               counted(totals->documents, "document"), (*tokenizer)->vocab());
  }
  return kOk;
}

int run_builtin(const DataArgs& args) {
  const std::int64_t bytes = *args.builtin;
  const std::string& output = *args.output;
  if (output != "-" && exists(output) && !*args.force) {
    return report(make_error("{}: exists; want another output, or --force", output));
  }
  const std::string text = builtin_corpus(static_cast<std::size_t>(bytes));
  if (const Result<void> written = write_file(output, text); !written) {
    return report(written.error());
  }
  if (output == "-") return kOk;  // print only the text, for a pipe
  if (*args.json) {
    Json json;
    json["output"] = output;
    json["text_bytes"] = bytes;
    fmt::print("{}\n", json.dump(2));
  } else {
    fmt::print("{}: {} of the builtin corpus\n", output, counted(bytes, "byte"));
  }
  return kOk;
}

int run_inspect(const DataArgs& args) {
  constexpr std::int64_t kShown = 16;
  const Result<TokenFile> file = TokenFile::open(*args.inspect);
  if (!file) return report(file.error());
  std::vector<std::int64_t> first(static_cast<std::size_t>(std::min(kShown, file->size())));
  file->read(0, first);
  if (*args.json) {
    Json json;
    json["file"] = file->name();
    json["dtype"] = file->dtype();
    json["tokens"] = file->size();
    json["documents"] = file->documents();
    json["first_tokens"] = first;
    fmt::print("{}\n", json.dump(2, ' ', true, Json::error_handler_t::replace));
    return kOk;
  }
  fmt::print("file       {}\ndtype      {}\ntokens     {}\ndocuments  {}\nbegins     {}{}\n",
             file->name(), file->dtype(), file->size(), file->documents(), fmt::join(first, " "),
             file->size() > kShown ? " ..." : "");
  return kOk;
}

int run_data(const DataArgs& args) {
  const int asked = (args.inputs.given() ? 1 : 0) + (args.builtin.given() ? 1 : 0) +
                    (args.inspect.given() ? 1 : 0);
  if (asked != 1) {
    return report(field_error("data", "got {} of --input, --builtin and --inspect; want one",
                              asked == 0   ? "none"
                              : asked == 2 ? "two"
                                           : "all"));
  }
  if (args.inspect.given()) {
    if (args.output.given()) {
      return report(field_error(
          "--output", "got {} with --inspect, which writes nothing; want only one of them",
          *args.output));
    }
    return run_inspect(args);
  }
  if (!args.output.given()) {
    return report(field_error(
        "--output", "got none; want {}",
        args.builtin.given() ? "a file for the text" : "a prefix, as x for x.bin and x.idx"));
  }
  remove_temporary_files_on_signals();
  return args.builtin.given() ? run_builtin(args) : run_tokenize(args);
}

}  // namespace

void add_data_command(CommandLine& line) {
  line.add<DataArgs>(
      {"data", "Turn text into token files, write the builtin corpus, or look into a token file",
       "copus data --input book.txt news.txt --split-documents blank-line --append-eod --output "
       "corpus"},
      run_data);
}

}  // namespace copus
