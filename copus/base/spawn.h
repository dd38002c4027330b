// Starts another program in a process group of its own. The program cannot outlive this process,
// because the kernel sends it a signal when its parent dies.
//
// The kernel sends that signal when the thread that called spawn() ends. So this thread must live
// as long as the program may.
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
  int out = -1;        // the program's standard output; -1: the same as this process's
  int err = -1;        // the program's standard error; -1: the same as this process's
  int kept_open = -1;  // a descriptor that the program gets under the same number; -1: none
};

// Returns when the program has begun to execute, or the error that prevented it. The program's
// standard input is empty. REQUIRES: descriptors 0 to 2 are open (open_standard_streams()).
Result<pid_t> spawn(const Spawn& child);

// This process's environment variables, each as NAME=value.
std::vector<std::string> own_variables();

}  // namespace copus
