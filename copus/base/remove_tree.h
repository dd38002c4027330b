#pragma once

#include <string>
#include <system_error>

namespace copus {

// Removes a folder and everything in it. A missing folder is no error. This replaces
// std::filesystem::remove_all, which calls a null pointer if a wheel's libtorch brings a second
// copy of the C++ library into the process.
void remove_tree(const std::string& path, std::error_code& error);

}  // namespace copus
