// An option of a command, declared once: its flag, its values, its purpose, its default and how a
// TOML file holds it. The arguments of a command are a group of options:
//
//   struct OptimizerArgs : OptionGroup {
//     using OptionGroup::OptionGroup;
//     Option<double> lr{this, "--lr", number(0, 100), "peak learning rate", 3e-4};
//   };
//
// The rest of the program derives from this declaration how to read the command line and TOML
// files, which values are errors, --help, shell completion, the config.toml that a run writes, and
// the tables of docs/commands.md. A new option is one new line.
#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "copus/args/values.h"
#include "copus/base/check.h"

namespace copus {

// The source of an option's value, weakest first: a later source overrides an earlier one. kRun is
// the run's own config.toml, which an earlier version of the program may have written.
enum class From { kDefault, kRun, kConfig, kCommandLine };

// Whether a TOML file of options may contain an option, and whether Copus writes it to such a file.
enum class InFile {
  kNo,     // an error in a file, because the option concerns only this start of the program
  kRead,   // read from a file, but never written
  kGiven,  // read, and written if a user or a file gave the option
  kKnown,  // read, and written if the option has a value, including its default
};

// Describes in words a default that follows from other options.
struct Otherwise {
  std::string text;
};
// Marks an option without a default: the user must give it on the command line.
struct Required {};

template <typename T>
struct Default {
  Default() = default;
  template <typename U>
  requires std::convertible_to<U, T> Default(U&& v)
      : value(std::forward<U>(v)) {}                                 // NOLINT: implicit by design
  Default(Otherwise otherwise) : text(std::move(otherwise.text)) {}  // NOLINT
  Default(Required) : required(true) {}                              // NOLINT

  std::optional<T> value;
  std::string text;  // shown in place of the value
  bool required = false;
};

class AnyOption;

// A group of options in the order of their declarations. The options of a nested group also belong
// to the groups around it.
class OptionGroup {
 public:
  // `title` is the heading of these options in --help and in documents.
  explicit OptionGroup(std::string title = "") : title_(std::move(title)) {}
  OptionGroup(OptionGroup* whole, std::string title) : title_(std::move(title)), whole_(whole) {}
  OptionGroup(const OptionGroup&) = delete;
  OptionGroup& operator=(const OptionGroup&) = delete;

  const std::string& title() const { return title_; }
  const std::vector<AnyOption*>& options() const { return options_; }
  // Finds an option by its name, such as "global-batch". Returns null if there is none.
  AnyOption* find(const std::string& name) const;

 private:
  friend class AnyOption;
  void add(AnyOption* option);

  std::string title_;
  OptionGroup* whole_ = nullptr;
  std::vector<AnyOption*> options_;
};

// The part of an option that does not depend on the type of its values.
class AnyOption {
 public:
  virtual ~AnyOption() = default;
  AnyOption(const AnyOption&) = delete;
  AnyOption& operator=(const AnyOption&) = delete;

  const std::string& flag() const { return flag_; }  // "--global-batch"; "path" if positional
  std::string name() const;                          // "global-batch"
  bool is_positional() const { return !flag_.starts_with("--"); }
  const std::string& help() const { return help_; }
  const std::string& title() const { return title_; }  // the title of its group
  InFile in_file() const { return in_file_; }
  bool required() const { return required_; }
  virtual const ValueForm& form() const = 0;
  // Returns the default as people read it. Empty: there is none.
  virtual std::string default_text() const = 0;

  From from() const { return from_; }
  bool given() const { return from_ != From::kDefault; }

  // Reads the value that `from` gives. `field` names the option in error messages.
  virtual Result<void> read(const std::vector<std::string>& texts, From from,
                            const std::string& field) = 0;
  virtual bool known() const = 0;
  // REQUIRES: known().
  virtual Json value() const = 0;
  // Returns the value to write to a TOML file. Nothing: the file leaves the option out.
  virtual std::optional<Json> written() const = 0;
  void leave_out_of_file() { left_out_ = true; }

 protected:
  AnyOption(OptionGroup* group, const char* flag, std::string help, InFile in_file, bool required);

  From from_ = From::kDefault;
  bool left_out_ = false;

 private:
  std::string flag_, help_, title_;
  InFile in_file_;
  bool required_;
};

template <typename T>
class Option : public AnyOption {
 public:
  Option(OptionGroup* group, const char* flag, Values<T> values, std::string help,
         Default<T> otherwise = {}, InFile in_file = InFile::kKnown)
      : AnyOption(group, flag, std::move(help), in_file, otherwise.required),
        values_(std::move(values)),
        default_(std::move(otherwise)),
        value_(default_.value) {}

  // REQUIRES: known(). An option that is declared with a default value is always known.
  const T& operator*() const {
    COPUS_CHECK(value_.has_value());
    return *value_;
  }
  const T* operator->() const { return &**this; }
  T value_or(T fallback) const { return value_.value_or(std::move(fallback)); }

  void set(T value, From from) {
    value_ = std::move(value);
    from_ = from;
  }
  // Sets a default that follows from other options. Does nothing if the option was given.
  void set_default(T value) {
    if (!given()) value_ = std::move(value);
  }
  // Resets the option to its declared default, as if it had not been given.
  void forget() {
    value_ = default_.value;
    from_ = From::kDefault;
  }
  // Sets what a TOML file gets in place of the value: the full plan, for example, or an absolute
  // path.
  void write_as(T value) { written_ = std::move(value); }

  const ValueForm& form() const override { return values_.form; }
  std::string default_text() const override {
    if (!default_.text.empty() || !default_.value || values_.form.placeholder.empty()) {
      return default_.text;
    }
    std::string text;
    for (const std::string& each : spelled(values_.write(*default_.value))) {
      text += (text.empty() ? "" : ", ") + each;
    }
    return text;
  }
  Result<void> read(const std::vector<std::string>& texts, From from,
                    const std::string& field) override {
    Result<T> value = values_.read(texts, field);
    if (!value && from == From::kRun && values_.read_earlier) {
      Result<T> earlier = values_.read_earlier(texts, field);
      if (earlier) value = std::move(earlier);
    }
    if (!value) return value.error();
    set(std::move(value).value(), from);
    return {};
  }
  bool known() const override { return value_.has_value(); }
  Json value() const override { return values_.write(**this); }
  std::optional<Json> written() const override {
    const bool wanted = in_file() == InFile::kKnown || (in_file() == InFile::kGiven && given());
    if (!wanted || left_out_) return std::nullopt;
    if (written_) return values_.write(*written_);
    return known() ? std::optional(value()) : std::nullopt;
  }

 private:
  Values<T> values_;
  Default<T> default_;
  std::optional<T> value_, written_;
};

// Returns an option as words of a command line: {"--seed=2"}, one word for each element of a list.
// REQUIRES: known().
std::vector<std::string> command_words(const AnyOption& option);
// Returns the words of all options of the group that `from` or a stronger source has given.
std::vector<std::string> command_words(const OptionGroup& group, From from);

}  // namespace copus
