// A folder and all that is in it, gone.
#pragma once

#include <string>
#include <system_error>

namespace copus {

// What is not there is no error. In place of std::filesystem::remove_all, which calls a null
// pointer where a wheel's libtorch brings a second copy of the C++ library into the process.
void remove_tree(const std::string& path, std::error_code& error);

}  // namespace copus
