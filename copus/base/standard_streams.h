// Prepares standard input, output and error at the start of a program.
#pragma once

#include <cstddef>

namespace copus {

// Opens /dev/null for each standard stream that is closed. Call this before anything else is
// opened: otherwise a file or socket could get the number of a standard stream, and prints would go
// into it.
void open_standard_streams();

// From now on, output to a reader that has gone away (a closed pipe) is dropped without an error.
// The command goes on, because its exit code is a result too. Other failures to print remain
// errors.
void print_to_whoever_reads();

// How many columns wide a table printed to `fd` may be: the terminal's width, else the variable
// COLUMNS, else 80.
std::size_t output_columns(int fd);

}  // namespace copus
