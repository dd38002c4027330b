#include "copus/train/data/builtin_corpus.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "copus/train/data/lexicon.h"

namespace copus {
namespace {

using u32 = std::uint32_t;

constexpr std::string_view kArticles[2][kAgreements] = {{"lo", "los", "la", "lai", "el", "els"},
                                                        {"un", "uns", "una", "unai", "en", "ens"}};
constexpr std::string_view kPronouns[kAgreements] = {"ho", "hon", "ha", "hai", "he", "hes"};
constexpr std::string_view kPrepositions[] = {"in", "sur", "de", "kon", "per", "til", "ab", "zwi"};
constexpr std::string_view kConjunctions[] = {"i", "ma", "por", "si"};

// Appends one document to `out`. Its text depends on its number alone.
class Document {
 public:
  Document(const Lexicon& lexicon, std::uint64_t number, std::string& out)
      : lexicon_(lexicon), random_(mix64(0xC0B05, number)), out_(out) {
    topic_ = random_.below(kTopics);
    const u32 names = 2 + random_.below(3);
    for (u32 i = 0; i < names; ++i) {
      std::string text = capitalised(invent_word(random_, 2 + random_.below(2)));
      names_.push_back({std::move(text), random_.below(kGenders), false});
    }
    place_ = lexicon_.place_ranks.draw(random_);
  }

  void write() {
    const Noun& title = lexicon_.nouns[topic_noun()];
    add("= ");
    add(capitalised(title.forms[random_.below(2)]));
    add(" in ");
    add(lexicon_.places[place_].name);
    add(" =\n");
    const u32 paragraphs = 2 + random_.below(5);
    for (u32 p = 0; p < paragraphs; ++p) {
      past_ = random_.chance(60) ? 1 : 0;
      const u32 sentences = 2 + random_.below(6);
      for (u32 s = 0; s < sentences; ++s) {
        if (s > 0) out_ += ' ';
        sentence();
      }
      out_ += '\n';
    }
    out_ += '\n';
  }

 private:
  struct Name {
    std::string text;
    u32 gender = 0;
    bool introduced = false;
  };
  struct Span {
    std::size_t begin = 0;
    std::size_t size = 0;
  };
  struct Subject {
    u32 gender = 0;
    u32 plural = 0;
    u32 noun = kNouns;  // index in the lexicon; kNouns: the subject is a person
  };

  void add(std::string_view text) { out_.append(text); }
  void add_number(u32 n) {
    char digits[12];
    const auto end = std::to_chars(digits, digits + sizeof digits, n).ptr;
    out_.append(digits, static_cast<std::size_t>(end - digits));
  }

  u32 topic_noun() { return lexicon_.topics[topic_][lexicon_.topic_ranks.draw(random_)]; }
  u32 any_noun() { return random_.chance(60) ? topic_noun() : lexicon_.noun_ranks.draw(random_); }
  template <typename Links>
  u32 linked(const Links& links) {
    return links[lexicon_.link_ranks.draw(random_)];
  }

  Subject noun_phrase(u32 noun, bool may_nest) {
    const Noun& word = lexicon_.nouns[noun];
    const u32 plural = random_.chance(30) ? 1 : 0;
    const u32 form = 2 * word.gender + plural;
    // A noun that was mentioned before takes the definite article, a new one the indefinite.
    const bool known = std::find(spoken_.begin(), spoken_.end(), noun) != spoken_.end();
    add(kArticles[known ? 0 : 1][form]);
    out_ += ' ';
    if (!known) spoken_.push_back(noun);
    if (random_.chance(35)) {
      const u32 adjective =
          random_.chance(90) ? linked(word.adjectives) : random_.below(kAdjectives);
      add(lexicon_.adjectives[adjective].forms[form]);
      out_ += ' ';
    }
    add(word.forms[plural]);
    if (may_nest && random_.chance(8)) bracket(0);
    return {word.gender, plural, noun};
  }

  // Writes a phrase in brackets: "(…)", with "[…]" inside it, and "{…}" inside that.
  void bracket(u32 depth) {
    static constexpr std::string_view kOpen[] = {" (", " [", " {"};
    static constexpr std::string_view kClose[] = {")", "]", "}"};
    add(kOpen[depth]);
    noun_phrase(any_noun(), false);
    if (depth < 2 && random_.chance(45)) bracket(depth + 1);
    if (random_.chance(30)) {
      out_ += ' ';
      add(kPrepositions[lexicon_.nouns[spoken_.back()].gender]);
      out_ += ' ';
      noun_phrase(any_noun(), false);
    }
    add(kClose[depth]);
  }

  Subject subject() {
    if (random_.chance(35)) {
      Name& name = names_[random_.below(static_cast<u32>(names_.size()))];
      add(name.text);
      if (!name.introduced) {
        name.introduced = true;
        add(", ");
        noun_phrase(topic_noun(), false);
        add(" de ");
        add(lexicon_.places[place_].name);
        out_ += ',';
      }
      last_ = {name.gender, 0, kNouns};
      return last_;
    }
    if (spoken_.size() > 2 && random_.chance(25)) {  // mentions a recent noun again
      const std::size_t back = 1 + random_.below(3);
      return last_ = noun_phrase(spoken_[spoken_.size() - back], true);
    }
    return last_ = noun_phrase(any_noun(), true);
  }

  void predicate(const Subject& subject) {
    const u32 verb = subject.noun < kNouns && random_.chance(88)
                         ? linked(lexicon_.nouns[subject.noun].verbs)
                         : linked(lexicon_.nouns[topic_noun()].verbs);
    const Verb& word = lexicon_.verbs[verb];
    out_ += ' ';
    add(word.forms[2 * past_ + subject.plural]);
    out_ += ' ';
    if (random_.chance(12)) {
      add(lexicon_.adverbs[lexicon_.adverb_ranks.draw(random_)]);
      out_ += ' ';
    }
    noun_phrase(random_.chance(88) ? linked(word.objects) : any_noun(), true);
    if (random_.chance(30)) {
      out_ += ' ';
      add(kPrepositions[word.preposition]);
      out_ += ' ';
      if (random_.chance(25)) {
        add(lexicon_.places[place_].name);
      } else {
        noun_phrase(any_noun(), false);
      }
    }
  }

  void clause() { predicate(subject()); }

  void statement() {
    const std::size_t begin = out_.size();
    clause();
    if (random_.chance(30)) {
      out_ += ',';
      out_ += ' ';
      add(kConjunctions[random_.below(4)]);
      out_ += ' ';
      if (random_.chance(50)) {
        add(kPronouns[2 * last_.gender + last_.plural]);
        predicate(last_);
      } else {
        clause();
      }
    }
    sentences_.push_back({begin, out_.size() - begin});
    out_ += '.';
  }

  void quotation() {
    const Span span = sentences_[random_.below(static_cast<u32>(sentences_.size()))];
    add(names_[random_.below(static_cast<u32>(names_.size()))].text);
    add(past_ != 0 ? " dikidu: \"" : " diket: \"");
    add(out_.substr(span.begin, span.size));
    add(".\"");
  }

  void enumeration() {
    const u32 first = random_.chance(70) ? 1 : 1 + random_.below(90);
    const u32 count = 3 + random_.below(5);
    add("Lista:");
    for (u32 i = 0; i < count; ++i) {
      out_ += ' ';
      add_number(first + i);
      add(". ");
      const Noun& noun = lexicon_.nouns[topic_noun()];
      add(noun.forms[0]);
      out_ += i + 1 < count ? ';' : '.';
    }
  }

  void sum() {
    const bool times = random_.chance(40);
    const u32 a = times ? 2 + random_.below(11) : random_.below(100);
    const u32 b = times ? 2 + random_.below(11) : random_.below(100);
    add_number(a);
    add(times ? " * " : " + ");
    add_number(b);
    add(" = ");
    add_number(times ? a * b : a + b);
    out_ += '.';
  }

  void fact() {
    const u32 which = random_.chance(50) ? place_ : lexicon_.place_ranks.draw(random_);
    const Place& place = lexicon_.places[which];
    add(place.name);
    add(" jaset in ");
    add(lexicon_.places[place.region].name);
    add(", fondidu in ");
    add_number(place.founded);
    add(", konet per ");
    add(lexicon_.nouns[place.known_for].forms[1]);
    out_ += '.';
  }

  void sentence() {
    const std::size_t begin = out_.size();
    const u32 kind = random_.below(100);
    if (kind < 9 && !sentences_.empty()) {
      quotation();
    } else if (kind < 12) {
      enumeration();
    } else if (kind < 18) {
      sum();
    } else if (kind < 25) {
      fact();
    } else {
      statement();
    }
    if (out_[begin] >= 'a' && out_[begin] <= 'z') {
      out_[begin] = static_cast<char>(out_[begin] - 'a' + 'A');
    }
  }

  const Lexicon& lexicon_;
  Random random_;
  std::string& out_;
  std::vector<Name> names_;
  std::vector<u32> spoken_;  // the nouns mentioned so far, each once
  std::vector<Span> sentences_;
  Subject last_;
  u32 topic_ = 0;
  u32 place_ = 0;
  u32 past_ = 0;
};

}  // namespace

std::string builtin_corpus(std::size_t bytes) {
  constexpr std::size_t kLongestDocument = std::size_t{1} << 16U;
  const Lexicon lexicon;
  std::string out;
  out.reserve(bytes + kLongestDocument);
  for (std::uint64_t number = 0; out.size() < bytes; ++number) {
    Document(lexicon, number, out).write();
  }
  out.resize(bytes);
  return out;
}

}  // namespace copus
