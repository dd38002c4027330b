// A whole file or none: what is written gets its name once it is on disk, so that a crash or a full
// disk leaves the old content or the new.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "copus/base/result.h"

namespace copus {

// A link keeps leading where it leads; what is no file (a pipe, a device) and what is open as
// standard output or error is written to as it is.
Result<void> write_whole_file(const std::string& path, std::string_view content);

// Reads all of a regular file of at most `limit` bytes. `kind` says in errors what was wanted, as
// in "JSON". A device or a pipe, which may never end, is refused.
Result<std::string> read_whole_file(const std::string& path, std::string_view kind,
                                    std::size_t limit);

// Writes all of it, however many calls that takes. 0, or what stopped it (errno).
int write_all(int fd, std::string_view bytes);

// What was renamed in the folder, or into it, is so after a crash, too.
Result<void> sync_folder(const std::string& folder);

}  // namespace copus
