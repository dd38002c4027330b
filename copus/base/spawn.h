// Starts another program, in a process group of its own, so that it cannot outlive this process.
//
// The thread that starts it must live as long as it may: the kernel's parent-death signal follows
// the thread.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "copus/base/result.h"

namespace copus {

struct Spawn {
  std::string path;
  std::vector<std::string> command;
  std::vector<std::string> variables;  // NAME=value each
  int out = -1;                        // what becomes its standard output; -1: this process's
  int err = -1;                        // and its standard error
  int kept_open = -1;                  // a descriptor that it has too, by the same number; -1: none
};

// REQUIRES: descriptors 0 to 2 are open (open_standard_streams()). Standard input is empty. It has
// begun to execute when this returns; a failure to is an error.
Result<pid_t> spawn(const Spawn& child);

// This process's variables, NAME=value each.
std::vector<std::string> own_variables();

}  // namespace copus
