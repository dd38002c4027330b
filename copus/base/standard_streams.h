// What this process reads from and prints to, before it does anything else.
#pragma once

namespace copus {

// What was closed is /dev/null now. To be called before anything else is opened: a file or socket
// that got the number of a standard stream would be written to by whoever prints.
void open_standard_streams();

// From now on what is printed to a reader that has gone away is dropped, and the command goes on:
// what it finds out is also its exit code. Any other failure to print stays an error.
void print_to_whoever_reads();

}  // namespace copus
