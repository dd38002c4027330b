// Finds the running program and the files that belong to it. In a build folder those files are
// beside the program; once installed, they are in lib/copus of the same prefix.
#pragma once

#include <filesystem>
#include <string_view>

namespace copus {

// The path of the running program, with symbolic links resolved. Empty if the system does not tell.
std::filesystem::path own_program();

// The path of the file `name` that belongs to `program`. The file may be missing: the caller
// reports that when it opens the file. Empty if `program` is not a full path, so that no file of
// the current folder is used instead.
std::filesystem::path program_file(const std::filesystem::path& program, std::string_view name);

}  // namespace copus
