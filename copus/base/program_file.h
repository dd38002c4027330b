// Where the program lies, and the files that belong to it: in a build folder they lie beside it,
// installed they are in lib/copus of the same prefix.
#pragma once

#include <filesystem>
#include <string_view>

namespace copus {

// The program that runs, by its path; symbolic links are followed. Empty: the system does not say.
std::filesystem::path own_program();

// The file `name` that belongs to `program`. It need not exist: a caller that opens it says so.
// Empty where the program's full path is not known: nothing is taken from the current folder.
std::filesystem::path program_file(const std::filesystem::path& program, std::string_view name);

}  // namespace copus
