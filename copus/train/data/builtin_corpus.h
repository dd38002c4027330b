// The builtin corpus: text that is generated, so that a first run needs no download.
//
// It is in an invented language with structure at every scale, so that the loss of a small model
// goes on falling: spelling, agreement of endings, which words go together, a topic per document,
// facts that hold throughout, names and sentences that come back, numbers that count up, sums that
// are right, brackets that close. The same bytes on every platform, and any length is a prefix of
// every longer one. Documents are separated by a blank line. ASCII.
#pragma once

#include <cstddef>
#include <string>

namespace copus {

// What "builtin" stands for as a data source. Changing the text changes every recorded loss.
constexpr std::size_t kBuiltinCorpusBytes = std::size_t{8} << 20U;

std::string builtin_corpus(std::size_t bytes);

}  // namespace copus
