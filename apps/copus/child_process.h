// A child process with its output in a file, that outlives neither this one nor its interest in it.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "copus/base/result.h"

namespace copus {

class ChildProcess {
 public:
  // In a process group of its own: Ctrl-C at a terminal reaches this process alone.
  static Result<ChildProcess> start(const std::vector<std::string>& command,
                                    const std::string& log);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;
  // Kills it.
  ~ChildProcess();

  bool ended();
  void signal(int number) const;
  // Once it has ended. 0, or what it exited with; 128 and a signal's number.
  int code() const;

 private:
  ChildProcess() = default;
  pid_t pid_ = 0;
  int status_ = 0;
};

}  // namespace copus
