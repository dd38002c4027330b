// What this process reads from and prints to, before it does anything else.
#pragma once

#include <cstddef>

namespace copus {

// What was closed is /dev/null now. To be called before anything else is opened: a file or socket
// that got the number of a standard stream would be written to by whoever prints.
void open_standard_streams();

// From now on what is printed to a reader that has gone away is dropped, and the command goes on:
// what it finds out is also its exit code. Any other failure to print stays an error.
void print_to_whoever_reads();

// How many columns a table printed to `fd` may have: the terminal's, or what COLUMNS says. 80 where
// neither is known, in a file say.
std::size_t output_columns(int fd);

}  // namespace copus
