// Reads and writes whole files. A written file gets its name only once it is on disk. So after a
// crash or with a full disk, the file has either its old or its new content.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "copus/base/result.h"

namespace copus {

// Writes through symbolic links, and the links stay. If the path is not a file (a pipe, a device)
// or is open as standard output or error, the content is written to it directly.
Result<void> write_whole_file(const std::string& path, std::string_view content);

// Reads a regular file of at most `limit` bytes. In errors, `kind` names what was expected, such as
// "JSON". Devices and pipes, which may never end, are refused.
Result<std::string> read_whole_file(const std::string& path, std::string_view kind,
                                    std::size_t limit);

// Writes all bytes, in several calls if necessary. Returns 0 or errno.
int write_all(int fd, std::string_view bytes);

// After this, renames within or into the folder survive a crash.
Result<void> sync_folder(const std::string& folder);

// Creates the folder and its parents where they are missing. After this, the new folders survive a
// crash.
Result<void> create_folders(const std::string& path);

}  // namespace copus
