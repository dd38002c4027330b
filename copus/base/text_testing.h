// For tests: checks that a text contains another.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace copus {

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

inline void expect_contains(const std::string& text, std::string_view part) {
  EXPECT_TRUE(contains(text, part)) << "\"" << text << "\" lacks \"" << part << "\"";
}

}  // namespace copus
