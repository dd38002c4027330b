// What this program was built from; the build writes the definitions (cmake/BuildFacts.cmake).
#pragma once

#include <span>
#include <string_view>

namespace copus {

struct BuildFact {
  std::string_view name;     // "libtorch"
  std::string_view version;  // empty: built without it
};

std::string_view build_version();  // "0.1.0"
// "0123456789ab", with "+changes" where the tree had some; "unknown" outside a clone.
std::string_view build_commit();
std::span<const BuildFact> build_facts();

}  // namespace copus
