#include "copus/train/launch/rank_process.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
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

#include "copus/base/spawn.h"
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

 private:
  void close_end(std::size_t i) {
    if (ends_[i] >= 0) ::close(ends_[i]);
    ends_[i] = -1;
  }
  std::array<int, 2> ends_ = {-1, -1};
};

void set_nonblocking(int fd) { ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK); }

}  // namespace

std::vector<std::string> rank_variables(std::vector<std::string> inherited, int rank, int ranks,
                                        int master_port, const std::string& node_store, int cores) {
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
  set("COPUS_NODE_STORE", node_store);
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
  if ((!keep_stdout && !out.open()) || !err.open()) {
    return make_error("rank {}: cannot open a pipe: {}", rank, std::strerror(errno));
  }
  COPUS_TRY(const pid_t pid,
            spawn({path, command, variables, out.write_end(), err.write_end(), kept_open}));
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
  // WNOWAIT leaves the process unreaped at first, so that no other process can get its number while
  // its group is killed.
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
