// A whole file or none: what is written gets its name once it is on disk, so that a crash or a full
// disk leaves the old content or the new.
#pragma once

#include <string>
#include <string_view>

#include "copus/base/result.h"

namespace copus {

// A link keeps leading where it leads; what is no file (a pipe, a device) and what is open as
// standard output or error is written to as it is.
Result<void> write_whole_file(const std::string& path, std::string_view content);

// Writes all of it, however many calls that takes. 0, or what stopped it (errno).
int write_all(int fd, std::string_view bytes);

// What was renamed in the folder, or into it, is so after a crash, too.
Result<void> sync_folder(const std::string& folder);

}  // namespace copus
