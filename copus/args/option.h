// An option of a command, stated once: its flag, its values, what it is for, its default and its
// place in files of options. A command's arguments are a group of them:
//
//   struct OptimizerArgs : OptionGroup {
//     using OptionGroup::OptionGroup;
//     Option<double> lr{this, "--lr", number(0, 100), "peak learning rate", 3e-4};
//   };
//
// Everything else follows from the statement: how the command line and a file are read (and what is
// refused), --help, the shell's completion, the file that a run writes of its options, and the
// tables of docs/commands.md. A new option is one new line.
#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "copus/args/values.h"
#include "copus/base/check.h"

namespace copus {

// Who gave an option its value; of two the later one here wins. kRun: the run's own config.toml,
// which an earlier version of the program may have written.
enum class From { kDefault, kRun, kConfig, kCommandLine };

// What a file of options has to do with an option.
enum class InFile {
  kNo,     // not to be there: it is of this start of the program alone
  kRead,   // may be there, and is never written
  kGiven,  // and is written where it was given
  kKnown,  // and is written where it has a value, a default one too
};

// A default that follows from other options, in words.
struct Otherwise {
  std::string text;
};
// There is no default: the command line must have it.
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
  std::string text;  // instead of the value, or where there is none
  bool required = false;
};

class AnyOption;

// Options in the order of their statements. A group in another is part of it.
class OptionGroup {
 public:
  // `title`: over these options in --help and in documents.
  explicit OptionGroup(std::string title = "") : title_(std::move(title)) {}
  OptionGroup(OptionGroup* whole, std::string title) : title_(std::move(title)), whole_(whole) {}
  OptionGroup(const OptionGroup&) = delete;
  OptionGroup& operator=(const OptionGroup&) = delete;

  const std::string& title() const { return title_; }
  const std::vector<AnyOption*>& options() const { return options_; }
  // By its name, "global-batch"; null: there is none.
  AnyOption* find(const std::string& name) const;

 private:
  friend class AnyOption;
  void add(AnyOption* option);

  std::string title_;
  OptionGroup* whole_ = nullptr;
  std::vector<AnyOption*> options_;
};

// An option whatever its values are.
class AnyOption {
 public:
  virtual ~AnyOption() = default;
  AnyOption(const AnyOption&) = delete;
  AnyOption& operator=(const AnyOption&) = delete;

  const std::string& flag() const { return flag_; }  // "--global-batch"; "path": it has a place
  std::string name() const;                          // "global-batch"
  bool is_positional() const { return !flag_.starts_with("--"); }
  const std::string& help() const { return help_; }
  const std::string& title() const { return title_; }  // its group's
  InFile in_file() const { return in_file_; }
  bool required() const { return required_; }
  virtual const ValueForm& form() const = 0;
  // As people read it; empty: there is none.
  virtual std::string default_text() const = 0;

  From from() const { return from_; }
  bool given() const { return from_ != From::kDefault; }

  // Reads the value that `from` gives. `field` names the option in errors.
  virtual Result<void> read(const std::vector<std::string>& texts, From from,
                            const std::string& field) = 0;
  virtual bool known() const = 0;
  // REQUIRES: known().
  virtual Json value() const = 0;
  // What a file of options gets; nothing: it is left out.
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

  // REQUIRES: known(), which is always so where the statement has a default value.
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
  // The default, where it follows from other options.
  void set_default(T value) {
    if (!given()) value_ = std::move(value);
  }
  // As if it had not been given.
  void forget() {
    value_ = default_.value;
    from_ = From::kDefault;
  }
  // What a file of options gets in place of the value: a plan in full, a path that holds from
  // everywhere.
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

// An option as a command line gives it: {"--seed=2"}, one word for each element of a list.
// REQUIRES: known().
std::vector<std::string> command_words(const AnyOption& option);
// All of the group that `from`, or what wins over it, has given.
std::vector<std::string> command_words(const OptionGroup& group, From from);

}  // namespace copus
