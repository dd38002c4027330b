#include "copus/train/launch/rank_process.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include "copus/base/text.h"

namespace copus {
namespace {

class Pipe {
 public:
  Pipe() = default;
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  bool open() { return ::pipe2(ends_.data(), O_CLOEXEC) == 0; }
  int read_end() const { return ends_[0]; }
  int write_end() const { return ends_[1]; }
  int release_read_end() { return std::exchange(ends_[0], -1); }
  void close_write_end() { close_end(1); }

 private:
  void close_end(std::size_t i) {
    if (ends_[i] >= 0) ::close(ends_[i]);
    ends_[i] = -1;
  }
  std::array<int, 2> ends_ = {-1, -1};
};

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> all;
  all.reserve(texts.size() + 1);
  for (const std::string& text : texts) all.push_back(const_cast<char*>(text.c_str()));
  all.push_back(nullptr);
  return all;
}

struct ChildPlan {
  const char* path;
  char* const* argv;
  char* const* envp;
  int out;  // -1: keep
  int err;
  int kept_open;  // -1: none
  int failure;    // where errno goes
  pid_t parent;
  const sigset_t* mask;
};

// Between fork and exec: the parent may have threads, so nothing here may allocate or lock.
[[noreturn]] void become_rank(const ChildPlan& plan) {
  const auto give_up = [&] {
    const int reason = errno;
    [[maybe_unused]] const ssize_t written = ::write(plan.failure, &reason, sizeof reason);
    ::_exit(127);
  };
  // Own group: Ctrl-C at a terminal reaches the supervisor alone, and the group can be killed
  // whole.
  if (::setpgid(0, 0) != 0) give_up();
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) give_up();
  if (::getppid() != plan.parent) ::_exit(127);  // it died before the line above
  const int null = ::open("/dev/null", O_RDONLY);
  if (null < 0 || ::dup2(null, STDIN_FILENO) < 0) give_up();
  if (null > STDERR_FILENO) ::close(null);
  if (plan.out >= 0 && ::dup2(plan.out, STDOUT_FILENO) < 0) give_up();
  if (::dup2(plan.err, STDERR_FILENO) < 0) give_up();
  if (plan.kept_open >= 0 && ::fcntl(plan.kept_open, F_SETFD, 0) != 0) give_up();
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  for (const int number : {SIGINT, SIGTERM, SIGCHLD, SIGPIPE}) {
    ::sigaction(number, &standard, nullptr);
  }
  ::sigprocmask(SIG_SETMASK, plan.mask, nullptr);
  ::execve(plan.path, plan.argv, plan.envp);
  give_up();
  std::abort();  // not reached
}

// 0 once the child executes; what stopped it otherwise.
int exec_errno(int fd) {
  int reason = 0;
  ssize_t n = 0;
  do {
    n = ::read(fd, &reason, sizeof reason);
  } while (n < 0 && errno == EINTR);
  return n == static_cast<ssize_t>(sizeof reason) ? reason : 0;
}

void set_nonblocking(int fd) { ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK); }

}  // namespace

std::vector<std::string> rank_variables(std::vector<std::string> inherited, int rank, int ranks,
                                        int master_port, int cores) {
  const auto set = [&](std::string_view name, const std::string& value) {
    std::erase_if(inherited, [&](std::string_view each) {
      return each.starts_with(name) && each.substr(name.size()).starts_with('=');
    });
    if (!value.empty()) inherited.push_back(fmt::format("{}={}", name, value));
  };
  const bool threads_chosen =
      std::any_of(inherited.begin(), inherited.end(),
                  [](const std::string& each) { return each.starts_with("OMP_NUM_THREADS="); });
  const std::string rank_text = fmt::format("{}", rank);
  const std::string ranks_text = fmt::format("{}", ranks);
  set("RANK", rank_text);
  set("WORLD_SIZE", ranks_text);
  set("LOCAL_RANK", rank_text);
  set("LOCAL_WORLD_SIZE", ranks_text);
  set("MASTER_ADDR", "127.0.0.1");
  set("MASTER_PORT", master_port > 0 ? fmt::format("{}", master_port) : "");
  set("TORCHELASTIC_USE_AGENT_STORE", "True");
  set("COPUS_LAUNCHED", "1");
  if (!threads_chosen) set("OMP_NUM_THREADS", fmt::format("{}", std::max(1, cores / ranks)));
  return inherited;
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

Result<std::string> find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* path = std::getenv("PATH");
  for (const std::string_view folder : split(path == nullptr ? "/usr/bin:/bin" : path, ':')) {
    std::string candidate = fmt::format("{}/{}", folder.empty() ? "." : folder, name);
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return make_error("{}: no such program on PATH", name.empty() ? "\"\"" : name);
}

Result<RankProcess> start_rank(int rank, const std::string& path,
                               const std::vector<std::string>& command,
                               const std::vector<std::string>& variables, bool keep_stdout,
                               int kept_open) {
  Pipe out;
  Pipe err;
  Pipe failure;
  if ((!keep_stdout && !out.open()) || !err.open() || !failure.open()) {
    return make_error("rank {}: no pipe: {}", rank, std::strerror(errno));
  }
  const std::vector<char*> argv = pointers(command);
  const std::vector<char*> envp = pointers(variables);

  // A signal between fork and exec would run this process's handlers in the child.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const ChildPlan plan = {path.c_str(),        argv.data(),     envp.data(),
                          out.write_end(),     err.write_end(), kept_open,
                          failure.write_end(), ::getpid(),      &before};
  const pid_t pid = ::fork();
  if (pid == 0) become_rank(plan);
  const int fork_errno = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) return make_error("rank {}: no process: {}", rank, std::strerror(fork_errno));

  ::setpgid(pid, pid);  // the child does so too; whoever is first
  failure.close_write_end();
  if (const int reason = exec_errno(failure.read_end()); reason != 0) {
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    return make_error("{}: cannot be started: {}", path, std::strerror(reason));
  }
  RankProcess process;
  process.rank = rank;
  process.pid = pid;
  process.out.fd = out.release_read_end();
  process.err.fd = err.release_read_end();
  if (process.out.fd >= 0) set_nonblocking(process.out.fd);
  set_nonblocking(process.err.fd);
  return process;
}

void signal_rank(const RankProcess& process, int signal) {
  if (process.pid > 0) ::kill(-process.pid, signal);
}

std::optional<RankExit> reap_rank(RankProcess& process) {
  siginfo_t info = {};
  // Left unreaped at first, so that its number stays its own while the group is killed.
  if (::waitid(P_PID, static_cast<id_t>(process.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0) {
    return std::nullopt;
  }
  signal_rank(process, SIGKILL);
  while (::waitpid(process.pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  process.pid = -1;
  if (info.si_code == CLD_EXITED) return RankExit{info.si_status, 0};
  return RankExit{0, info.si_status};
}

}  // namespace copus
