#include "copus/base/spawn.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

extern char** environ;

namespace copus {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> all;
  all.reserve(texts.size() + 1);
  for (const std::string& text : texts) all.push_back(const_cast<char*>(text.c_str()));
  all.push_back(nullptr);
  return all;
}

struct ChildPlan {
  const Spawn& spawn;
  char* const* argv;
  char* const* envp;
  int failure;  // a pipe that takes errno to the parent
  pid_t parent;
  const sigset_t* mask;
};

// Runs between fork and exec. The parent may have threads, so this must not allocate or lock.
[[noreturn]] void become(const ChildPlan& plan) {
  const Spawn& spawn = plan.spawn;
  const auto give_up = [&] {
    const int reason = errno;
    [[maybe_unused]] const ssize_t written = ::write(plan.failure, &reason, sizeof reason);
    ::_exit(127);
  };
  // A process group of its own: Ctrl-C at a terminal reaches only the parent, and the parent can
  // kill the whole group.
  if (::setpgid(0, 0) != 0) give_up();
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) give_up();
  if (::getppid() != plan.parent) ::_exit(127);  // the parent died before prctl()
  const int null = ::open("/dev/null", O_RDONLY);
  if (null < 0 || ::dup2(null, STDIN_FILENO) < 0) give_up();
  if (null > STDERR_FILENO) ::close(null);
  if (spawn.out >= 0 && ::dup2(spawn.out, STDOUT_FILENO) < 0) give_up();
  if (spawn.err >= 0 && ::dup2(spawn.err, STDERR_FILENO) < 0) give_up();
  if (spawn.kept_open >= 0 && ::fcntl(spawn.kept_open, F_SETFD, 0) != 0) give_up();
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  // An ignored signal stays ignored (as under nohup), except for the four named below.
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction now = {};
    const bool reset =
        number == SIGINT || number == SIGTERM || number == SIGCHLD || number == SIGPIPE;
    if (reset || (::sigaction(number, nullptr, &now) == 0 && now.sa_handler != SIG_IGN)) {
      ::sigaction(number, &standard, nullptr);
    }
  }
  ::sigprocmask(SIG_SETMASK, plan.mask, nullptr);
  ::execve(spawn.path.c_str(), plan.argv, plan.envp);
  give_up();
  std::abort();  // not reached
}

// 0 if the child now executes the program; otherwise the errno of the failure.
int exec_errno(int fd) {
  int reason = 0;
  ssize_t n = 0;
  do {
    n = ::read(fd, &reason, sizeof reason);
  } while (n < 0 && errno == EINTR);
  return n == static_cast<ssize_t>(sizeof reason) ? reason : 0;
}

}  // namespace

std::vector<std::string> own_variables() {
  std::vector<std::string> all;
  for (char** each = environ; *each != nullptr; ++each) all.emplace_back(*each);
  return all;
}

Result<pid_t> spawn(const Spawn& child) {
  const std::vector<char*> argv = pointers(child.command);
  const std::vector<char*> envp = pointers(child.variables);
  int failure[2];
  if (::pipe2(failure, O_CLOEXEC) != 0) {
    return make_error("{}: cannot be started: {}", child.path, std::strerror(errno));
  }
  // A signal between fork and exec would run this process's handlers in the child.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const ChildPlan plan = {child, argv.data(), envp.data(), failure[1], ::getpid(), &before};
  const pid_t pid = ::fork();
  if (pid == 0) become(plan);
  int reason = pid < 0 ? errno : 0;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::close(failure[1]);
  if (pid > 0) {
    ::setpgid(pid, pid);  // the child does this too, and either may be first
    reason = exec_errno(failure[0]);
  }
  ::close(failure[0]);
  if (reason == 0) return pid;
  while (pid > 0 && ::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  return make_error("{}: cannot be started: {}", child.path, std::strerror(reason));
}

}  // namespace copus
