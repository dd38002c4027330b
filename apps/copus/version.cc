#include "apps/copus/version.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "apps/copus/build_facts.h"
#include "copus/base/json.h"

namespace copus {
namespace {

std::string version_text() {
  constexpr int kVersionColumn = 15;
  std::string text = fmt::format("copus {}\n", build_version());
  text += fmt::format("{:<{}}{}\n", "commit", kVersionColumn, build_commit());
  for (const BuildFact& fact : build_facts()) {
    text += fmt::format("{:<{}}{}\n", fact.name, kVersionColumn,
                        fact.version.empty() ? "none" : fact.version);
  }
  return text;
}

std::string version_json() {
  Json json = {{"version", build_version()}, {"commit", build_commit()}};
  for (const BuildFact& fact : build_facts()) {
    std::string key(fact.name);
    std::transform(key.begin(), key.end(), key.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    json[key] = fact.version.empty() ? Json() : Json(fact.version);
  }
  return json.dump(2) + "\n";
}

}  // namespace

Result<std::optional<std::string>> version_answer(std::span<const char* const> words) {
  if (words.empty() || std::string_view(words[0]) != "--version")
    return std::optional<std::string>();
  if (words.size() == 1) return std::optional(version_text());
  if (words.size() == 2 && std::string_view(words[1]) == "--json")
    return std::optional(version_json());
  return field_error("--version", "got {} behind it; want nothing, or --json", words[1]);
}

}  // namespace copus
