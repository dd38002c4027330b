// Result<T>: a value, or an Error that a person can act on. Member names follow std::expected.
//
// An Error's message is one line that names the field, the value it had and what would be right:
// "field: got …; want …".
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "copus/base/check.h"

namespace copus {

struct Error {
  std::string message;
  std::string field =
      {};  // the field that the message is about, as the message names it; empty: none
};

// An Error that concerns no field, but a file for example: `return make_error("{}: no such file",
// path);`
template <typename... Args>
Error make_error(fmt::format_string<Args...> format, Args&&... args) {
  return Error{fmt::format(format, std::forward<Args>(args)...)};
}

// An Error about one field. Its message begins with the field's name:
// `return field_error("nodes", "got {}; want 1 or more", n);`
template <typename... Args>
Error field_error(std::string_view field, fmt::format_string<Args...> format, Args&&... args) {
  return Error{fmt::format("{}: {}", field, fmt::format(format, std::forward<Args>(args)...)),
               std::string(field)};
}

// The same error, with the place where it was found (an option, a file) in front of the message.
inline Error error_in(std::string_view where, const Error& error) {
  return Error{fmt::format("{}: {}", where, error.message), error.field};
}

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: implicit by design
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }

  // REQUIRES: has_value().
  T& value() & {
    COPUS_CHECK(has_value());
    return std::get<0>(state_);
  }
  const T& value() const& {
    COPUS_CHECK(has_value());
    return std::get<0>(state_);
  }
  T&& value() && {
    COPUS_CHECK(has_value());
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  // REQUIRES: !has_value().
  const Error& error() const {
    COPUS_CHECK(!has_value());
    return std::get<1>(state_);
  }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit by design

  bool has_value() const { return !error_.has_value(); }
  explicit operator bool() const { return has_value(); }
  const Error& error() const {
    COPUS_CHECK(error_.has_value());
    return *error_;  // NOLINT(bugprone-unchecked-optional-access): checked above
  }

 private:
  std::optional<Error> error_;
};

}  // namespace copus

#define COPUS_CONCAT_INNER(a, b) a##b
#define COPUS_CONCAT(a, b) COPUS_CONCAT_INNER(a, b)

// The arguments are declarations, which parentheses would break.
// NOLINTBEGIN(bugprone-macro-parentheses)
// COPUS_TRY(auto x, f()): x = *f(), or returns f()'s error from the enclosing function.
#define COPUS_TRY(declaration, expression) \
  COPUS_TRY_IMPL(declaration, expression, COPUS_CONCAT(copus_try_, __LINE__))
#define COPUS_TRY_IMPL(declaration, expression, temporary) \
  auto temporary = (expression);                           \
  if (!temporary) return temporary.error();                \
  declaration = std::move(temporary).value()

// COPUS_TRY_VOID(f()): returns f()'s error from the enclosing function, if there is one.
#define COPUS_TRY_VOID(expression) \
  if (auto copus_try_void = (expression); !copus_try_void.has_value()) return copus_try_void.error()
// NOLINTEND(bugprone-macro-parentheses)
