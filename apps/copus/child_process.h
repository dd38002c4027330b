// A child process whose output goes to a file. It ends with this process or with this object,
// whichever comes first.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "copus/base/result.h"

namespace copus {

class ChildProcess {
 public:
  // The child has its own process group, so Ctrl-C at a terminal reaches only this process.
  static Result<ChildProcess> start(const std::vector<std::string>& command,
                                    const std::string& log);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;
  // Kills the child.
  ~ChildProcess();

  bool ended();
  void signal(int number) const;
  // After it has ended: its exit code, or 128 + the signal's number.
  int code() const;

 private:
  ChildProcess() = default;
  pid_t pid_ = 0;
  int status_ = 0;
};

}  // namespace copus
