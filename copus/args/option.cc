#include "copus/args/option.h"

#include <algorithm>

namespace copus {

AnyOption::AnyOption(OptionGroup* group, const char* flag, std::string help, InFile in_file,
                     bool required)
    : flag_(flag),
      help_(std::move(help)),
      title_(group->title()),
      in_file_(in_file),
      required_(required) {
  group->add(this);
}

std::string AnyOption::name() const { return is_positional() ? flag_ : flag_.substr(2); }

AnyOption* OptionGroup::find(const std::string& name) const {
  const auto found = std::find_if(options_.begin(), options_.end(),
                                  [&](const AnyOption* each) { return each->name() == name; });
  return found == options_.end() ? nullptr : *found;
}

void OptionGroup::add(AnyOption* option) {
  COPUS_CHECK(find(option->name()) == nullptr);
  options_.push_back(option);
  if (whole_ != nullptr) whole_->add(option);
}

std::vector<std::string> command_words(const AnyOption& option) {
  const Json value = option.value();
  if (value == true) return {option.flag()};
  std::vector<std::string> words;
  for (const std::string& text : spelled(value)) {
    words.push_back(fmt::format("{}={}", option.flag(), text));
  }
  return words;
}

std::vector<std::string> command_words(const OptionGroup& group, From from) {
  std::vector<std::string> words;
  for (const AnyOption* option : group.options()) {
    if (!option->given() || option->from() < from) continue;
    for (std::string& word : command_words(*option)) words.push_back(std::move(word));
  }
  return words;
}

}  // namespace copus
