// The version, commit and libraries that this program was built from. The build writes the
// definitions (cmake/BuildFacts.cmake).
#pragma once

#include <span>
#include <string_view>

namespace copus {

struct BuildFact {
  std::string_view name;     // "libtorch"
  std::string_view version;  // empty: the program was built without it
};

std::string_view build_version();  // "0.1.0"
// "0123456789ab", with "+changes" if tracked files had changes; "unknown" outside of a git clone.
std::string_view build_commit();
std::span<const BuildFact> build_facts();

}  // namespace copus
