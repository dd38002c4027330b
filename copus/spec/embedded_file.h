// Gives access to files that are compiled into the binary. cmake/EmbedFiles.cmake writes the
// definition.
#pragma once

#include <span>
#include <string_view>

namespace copus {

struct EmbeddedFile {
  std::string_view path;  // relative to the embedded folder: "models/tiny.json"
  std::string_view content;
};

std::span<const EmbeddedFile> embedded_catalog();

}  // namespace copus
