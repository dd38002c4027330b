// One rank as a process: started so that it cannot outlive its parent, and ended with all that it
// started.
//
// Not thread-safe. The thread that starts a rank must live as long as the rank may: the kernel's
// parent-death signal follows the thread.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "copus/base/result.h"
#include "copus/train/launch/line_buffer.h"

namespace copus {

// The read end of a pipe and the line begun in it.
struct RankStream {
  int fd = -1;  // -1: at its end
  LineBuffer lines;
};

struct RankProcess {
  int rank = 0;
  pid_t pid = -1;  // also its process group; -1 once it has been reaped
  RankStream out;  // unused by a rank that keeps this process's standard output
  RankStream err;
  std::string last_words;  // the last line on standard error that says something
};

struct RankExit {
  int code = 0;
  int signal = 0;  // when one ended it
};

// The variables of one rank: `inherited` (NAME=value each) with those of the run set in it.
std::vector<std::string> rank_variables(std::vector<std::string> inherited, int rank, int ranks,
                                        int master_port, const std::string& node_store, int cores);

// Cores that this process may use.
int usable_cores();

// The path of a program as a shell finds it. An error when there is none.
Result<std::string> find_program(const std::string& name);

// Starts `path` as spawn() does, its output into pipes.
Result<RankProcess> start_rank(int rank, const std::string& path,
                               const std::vector<std::string>& command,
                               const std::vector<std::string>& variables, bool keep_stdout,
                               int kept_open = -1);

// To the rank and all in its process group.
void signal_rank(const RankProcess& process, int signal);

// Nothing while it runs. Once it has ended: kills what is left of its process group, then reaps it.
std::optional<RankExit> reap_rank(RankProcess& process);

}  // namespace copus
