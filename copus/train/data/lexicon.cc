#include "copus/train/data/lexicon.h"

#include <algorithm>
#include <unordered_set>

namespace copus {
namespace {

// A string that is repeated is drawn more often.
constexpr std::string_view kOnsets[] = {"t",  "t",  "t",  "n", "n", "s",  "s",  "r",  "r",
                                        "l",  "l",  "m",  "m", "d", "d",  "k",  "k",  "p",
                                        "v",  "b",  "g",  "h", "f", "th", "sh", "st", "br",
                                        "tr", "kr", "pl", "",  "w", "ch", "j",  "z",  "gl"};
constexpr std::string_view kVowels[] = {"a", "a", "a", "e", "e", "e",  "e",
                                        "i", "i", "o", "o", "u", "ia", "ou"};
constexpr std::string_view kCodas[] = {"", "", "", "", "n", "r", "s", "l", "m", "nd", "rk", "t"};

constexpr std::array<std::array<std::string_view, 2>, kGenders> kNounEndings = {
    {{"o", "on"}, {"a", "ai"}, {"", "es"}}};
constexpr std::array<std::string_view, kAgreements> kAdjectiveEndings = {"ino",  "inon", "ina",
                                                                         "inai", "ic",   "ices"};
constexpr std::array<std::string_view, 4> kVerbEndings = {"et", "ent", "idu", "indu"};
constexpr std::uint16_t kPrepositionCount = 8;

template <std::size_t N>
std::string_view pick(Random& random, const std::string_view (&choices)[N]) {
  return choices[random.below(static_cast<std::uint32_t>(N))];
}

// Returns `count` distinct stems. The first ones are used most often and are short.
std::vector<std::string> stems(Random& random, std::uint32_t count,
                               std::unordered_set<std::string>& taken) {
  std::vector<std::string> out;
  while (out.size() < count) {
    const auto rank = static_cast<std::uint32_t>(out.size());
    const std::uint32_t longest = rank < 40 ? 1 : rank < 400 ? 2 : 3;
    std::string stem = invent_word(random, longest > 1 ? longest - random.below(2) : 1);
    if (stem.size() >= 2 && taken.insert(stem).second) out.push_back(std::move(stem));
  }
  return out;
}

template <typename Draw>
void link(std::array<std::uint16_t, kLinks>& links, const Draw& draw) {
  for (std::uint16_t& one : links) one = static_cast<std::uint16_t>(draw());
}

}  // namespace

Zipf::Zipf(std::uint32_t size) {
  constexpr std::uint64_t kScale = std::uint64_t{1} << 32U;
  const auto weight = [](std::uint64_t rank) { return kScale / (rank + 3); };
  std::uint64_t total = 0;
  for (std::uint64_t rank = 0; rank < size; ++rank) total += weight(rank);
  table_.resize(std::size_t{1} << kBits);
  std::uint64_t rank = 0;
  std::uint64_t upto = weight(0);
  for (std::uint64_t i = 0; i < table_.size(); ++i) {
    while (rank + 1 < size && (upto << kBits) <= i * total) upto += weight(++rank);
    table_[i] = static_cast<std::uint16_t>(rank);
  }
}

std::string invent_word(Random& random, std::uint32_t syllables) {
  std::string word;
  for (std::uint32_t i = 0; i < syllables; ++i) {
    word += pick(random, kOnsets);
    word += pick(random, kVowels);
  }
  word += pick(random, kCodas);
  return word;
}

std::string capitalised(std::string_view word) {
  std::string out(word);
  if (!out.empty() && out[0] >= 'a' && out[0] <= 'z')
    out[0] = static_cast<char>(out[0] - 'a' + 'A');
  return out;
}

Lexicon::Lexicon()
    : nouns(kNouns), verbs(kVerbs), adjectives(kAdjectives), places(kPlaces), topics(kTopics) {
  Random random(20240607);
  std::unordered_set<std::string> taken;
  const Zipf verb_ranks(kVerbs);
  const Zipf adjective_ranks(kAdjectives);

  const std::vector<std::string> noun_stems = stems(random, kNouns, taken);
  for (std::size_t i = 0; i < kNouns; ++i) {
    Noun& noun = nouns[i];
    noun.gender = random.below(kGenders);
    for (std::size_t number = 0; number < 2; ++number) {
      noun.forms[number] = noun_stems[i] + std::string(kNounEndings[noun.gender][number]);
    }
    link(noun.verbs, [&] { return verb_ranks.draw(random); });
    link(noun.adjectives, [&] { return adjective_ranks.draw(random); });
  }
  const std::vector<std::string> verb_stems = stems(random, kVerbs, taken);
  for (std::size_t i = 0; i < kVerbs; ++i) {
    for (std::size_t form = 0; form < 4; ++form) {
      verbs[i].forms[form] = verb_stems[i] + std::string(kVerbEndings[form]);
    }
    link(verbs[i].objects, [&] { return noun_ranks.draw(random); });
    verbs[i].preposition = static_cast<std::uint16_t>(random.below(kPrepositionCount));
  }
  const std::vector<std::string> adjective_stems = stems(random, kAdjectives, taken);
  for (std::size_t i = 0; i < kAdjectives; ++i) {
    for (std::size_t form = 0; form < kAgreements; ++form) {
      adjectives[i].forms[form] = adjective_stems[i] + std::string(kAdjectiveEndings[form]);
    }
  }
  adverbs = stems(random, kAdverbs, taken);
  for (std::string& adverb : adverbs) adverb += "ely";
  const std::vector<std::string> place_stems = stems(random, kPlaces, taken);
  for (std::size_t i = 0; i < kPlaces; ++i) {
    places[i].name = capitalised(place_stems[i] + "or");
    places[i].region = static_cast<std::uint16_t>(random.below(kPlaces / 16));
    places[i].known_for = static_cast<std::uint16_t>(noun_ranks.draw(random));
    places[i].founded = static_cast<std::uint16_t>(1000 + random.below(900));
  }
  for (auto& topic : topics) {
    for (std::uint16_t& noun : topic) noun = static_cast<std::uint16_t>(random.below(kNouns));
  }
}

}  // namespace copus
