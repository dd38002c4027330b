// The builtin corpus: generated text, so that a first run needs no download.
//
// The text is in an invented language with structure at every scale, so that the loss of a small
// model goes on falling: spelling, agreement of endings, words that go together, a topic per
// document, facts that hold throughout, names and sentences that come back, numbers that count up,
// correct sums, brackets that close. The bytes are the same on every platform. A corpus of any
// length is a prefix of every longer one. A blank line separates documents. All bytes are ASCII.
#pragma once

#include <cstddef>
#include <string>

namespace copus {

// The size of the data source "builtin". A change of the text changes every recorded loss.
constexpr std::size_t kBuiltinCorpusBytes = std::size_t{8} << 20U;

// Returns the first `bytes` bytes of the corpus.
std::string builtin_corpus(std::size_t bytes);

}  // namespace copus
