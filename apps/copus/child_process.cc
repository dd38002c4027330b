#include "apps/copus/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "copus/base/spawn.h"

namespace copus {

Result<ChildProcess> ChildProcess::start(const std::vector<std::string>& command,
                                         const std::string& log) {
  const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (out < 0) return make_error("{}: cannot be written: {}", log, std::strerror(errno));
  const Result<pid_t> pid = spawn({command.front(), command, own_variables(), out, out});
  ::close(out);
  if (!pid) return pid.error();
  ChildProcess child;
  child.pid_ = *pid;
  return child;
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)), status_(other.status_) {}

ChildProcess::~ChildProcess() {
  if (pid_ <= 0) return;
  signal(SIGKILL);
  while (::waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
  }
}

bool ChildProcess::ended() {
  if (pid_ > 0 && ::waitpid(pid_, &status_, WNOHANG) == pid_) pid_ = 0;
  return pid_ <= 0;
}

void ChildProcess::signal(int number) const {
  if (pid_ > 0) ::kill(pid_, number);
}

int ChildProcess::code() const {
  return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
}

}  // namespace copus
