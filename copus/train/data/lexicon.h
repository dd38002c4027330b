// The invented language of the builtin corpus: its words, which words go together, and facts about
// its places. It is built from a constant seed, so it is the same on every platform.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "copus/train/data/random.h"

namespace copus {

// Draws numbers from 0 to size - 1, number k with a weight of 1 / (k + 3) (Zipf's law with a
// flattened head). A draw is one table look-up.
class Zipf {
 public:
  explicit Zipf(std::uint32_t size);
  std::uint32_t draw(Random& random) const { return table_[random.next() >> (32U - kBits)]; }

 private:
  static constexpr std::uint32_t kBits = 15;
  std::vector<std::uint16_t> table_;
};

constexpr std::uint32_t kNouns = 1600;
constexpr std::uint32_t kVerbs = 700;
constexpr std::uint32_t kAdjectives = 500;
constexpr std::uint32_t kAdverbs = 80;
constexpr std::uint32_t kPlaces = 400;
constexpr std::uint32_t kTopics = 48;
constexpr std::uint32_t kTopicNouns = 40;
constexpr std::uint32_t kLinks = 8;  // how many words of each kind a word usually goes with
constexpr std::uint32_t kGenders = 3;
constexpr std::uint32_t kAgreements = 2 * kGenders;  // forms, by index 2 * gender + plural

struct Noun {
  std::array<std::string, 2> forms;  // singular, plural
  std::uint32_t gender = 0;
  std::array<std::uint16_t, kLinks> verbs{};       // what it often does
  std::array<std::uint16_t, kLinks> adjectives{};  // what often describes it
};

struct Verb {
  std::array<std::string, 4> forms;  // by index 2 * past + plural
  std::array<std::uint16_t, kLinks> objects{};
  std::uint16_t preposition = 0;
};

struct Adjective {
  std::array<std::string, kAgreements> forms;
};

struct Place {
  std::string name;
  std::uint16_t region = 0;     // the place that it lies in
  std::uint16_t known_for = 0;  // a noun
  std::uint16_t founded = 0;    // a year
};

struct Lexicon {
  Lexicon();

  std::vector<Noun> nouns;
  std::vector<Verb> verbs;
  std::vector<Adjective> adjectives;
  std::vector<std::string> adverbs;
  std::vector<Place> places;
  std::vector<std::array<std::uint16_t, kTopicNouns>> topics;

  Zipf noun_ranks{kNouns};
  Zipf adverb_ranks{kAdverbs};
  Zipf place_ranks{kPlaces};
  Zipf topic_ranks{kTopicNouns};
  Zipf link_ranks{kLinks};
};

// Returns a random pronounceable word of so many syllables.
std::string invent_word(Random& random, std::uint32_t syllables);
std::string capitalised(std::string_view word);

}  // namespace copus
