#include "copus/train/data/dataset.h"

#include <algorithm>
#include <utility>

#include "copus/base/check.h"
#include "copus/base/text.h"
#include "copus/train/data/builtin_corpus.h"
#include "copus/train/data/permutation.h"
#include "copus/train/data/random.h"

namespace copus {
namespace {

constexpr std::int64_t kMaxSeqLen = 100'000'000;
constexpr std::int64_t kMaxTokens = std::int64_t{1} << 60U;

Result<void> check_options(const DatasetOptions& options) {
  if (options.seq_len < 1 || options.seq_len > kMaxSeqLen) {
    return field_error("seq_len", "got {}; want 1 to {}", options.seq_len, kMaxSeqLen);
  }
  if (options.vocab < 1) return field_error("vocab", "got {}; want 1 or more", options.vocab);
  if (!(options.held_out >= 0 && options.held_out < 1)) {  // also true if it is NaN
    return field_error("held_out", "got {}; want a share from 0 to below 1", options.held_out);
  }
  return {};
}

Result<std::vector<TokenFile>> open_files(const std::vector<std::string>& sources) {
  if (sources.empty()) return field_error("data", "got no files; want files, or builtin");
  std::vector<TokenFile> files;
  for (const std::string& source : sources) {
    if (source == "builtin") {
      if (sources.size() > 1) {
        return field_error("data",
                           "got builtin among {} sources; want builtin alone (./builtin is a "
                           "file of that name)",
                           sources.size());
      }
      files.push_back(TokenFile::from_bytes(builtin_corpus(kBuiltinCorpusBytes), source));
    } else {
      COPUS_TRY(TokenFile file, TokenFile::open(source));
      // A name given twice is intended. Both halves of a pair are not: a shell expands x.* to them.
      for (std::size_t i = 0; i < files.size(); ++i) {
        if (files[i].name() == file.name() && sources[i] != source) {
          return field_error("data", "got {} and {}, which are one pair; want one of them",
                             sources[i], source);
        }
      }
      files.push_back(std::move(file));
    }
  }
  return files;
}

}  // namespace

Result<Dataset> Dataset::open(const std::vector<std::string>& sources,
                              const DatasetOptions& options) {
  COPUS_TRY_VOID(check_options(options));
  Dataset dataset;
  dataset.options_ = options;
  COPUS_TRY(dataset.files_, open_files(sources));
  std::int64_t& total = dataset.total_tokens_;
  for (const TokenFile& file : dataset.files_) {
    dataset.starts_.push_back(total);
    if (file.size() > kMaxTokens - total) {
      return make_error("{}: got more than {} tokens in all; want fewer", file.name(), kMaxTokens);
    }
    total += file.size();
  }
  const bool holds_out = options.held_out > 0;
  const std::int64_t needed = options.seq_len * (holds_out ? 2 : 1) + 1;
  if (total < needed) {
    return make_error(
        "{}{}: got {}; want {} or more: {} of seq_len {}, and one token for the last target",
        dataset.files_.front().name(), dataset.files_.size() > 1 ? " and the other files" : "",
        counted(total, "token"), needed,
        holds_out ? "a sequence to train on and one to hold out, each" : "a sequence",
        options.seq_len);
  }
  const std::int64_t sequences = (total - 1) / options.seq_len;
  if (holds_out) {
    const auto share = static_cast<std::int64_t>(options.held_out * static_cast<double>(sequences));
    dataset.eval_ = std::clamp(share, std::int64_t{1}, sequences - 1);
  }
  dataset.train_ = sequences - dataset.eval_;
  return dataset;
}

Result<void> Dataset::sample(std::int64_t index, std::span<std::int64_t> out) const {
  COPUS_CHECK(index >= 0);
  const auto epoch = static_cast<std::uint64_t>(index / train_);
  const auto place = static_cast<std::uint64_t>(index % train_);
  const std::uint64_t key = mix64(options_.seed, epoch);
  return sequence(
      static_cast<std::int64_t>(permuted(place, static_cast<std::uint64_t>(train_), key)), out);
}

Result<void> Dataset::eval_sample(std::int64_t index, std::span<std::int64_t> out) const {
  COPUS_CHECK(index >= 0 && index < eval_);
  return sequence(train_ + index, out);
}

Result<void> Dataset::sequence(std::int64_t sequence, std::span<std::int64_t> out) const {
  COPUS_CHECK(static_cast<std::int64_t>(out.size()) == options_.seq_len + 1);
  std::int64_t position = sequence * options_.seq_len;
  auto file = static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), position) -
                                       starts_.begin() - 1);
  while (!out.empty()) {
    const TokenFile& from = files_[file];
    const std::int64_t begin = position - starts_[file];
    const auto count = std::min(static_cast<std::int64_t>(out.size()), from.size() - begin);
    const std::span<std::int64_t> part = out.first(static_cast<std::size_t>(count));
    from.read(begin, part);
    for (std::size_t i = 0; i < part.size(); ++i) {
      if (part[i] < 0 || part[i] >= options_.vocab) {
        return make_error("{}: token {}: got {}; want 0 to {}, the model's vocabulary", from.name(),
                          begin + static_cast<std::int64_t>(i), part[i], options_.vocab - 1);
      }
    }
    out = out.subspan(part.size());
    position += count;
    ++file;
  }
  return {};
}

}  // namespace copus
