// One rank as a process. It cannot outlive its parent, and all processes that it started in its
// process group end with it.
//
// Not thread-safe. The thread that starts a rank must outlive the rank: the kernel sends the
// parent-death signal when that thread ends.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "copus/base/result.h"
#include "copus/train/launch/line_buffer.h"

namespace copus {

// The read end of a pipe, and the line whose end has not arrived yet.
struct RankStream {
  int fd = -1;  // -1 after the end of the stream
  LineBuffer lines;
};

struct RankProcess {
  int rank = 0;
  pid_t pid = -1;  // also the number of its process group; -1 once it has been reaped
  RankStream out;  // unused if the rank keeps this process's standard output
  RankStream err;
  std::string last_words;  // its last line on standard error that is not blank
};

struct RankExit {
  int code = 0;
  int signal = 0;  // the signal that ended it; 0 if it exited
};

// Returns the variables of one rank: `inherited` (each NAME=value), with the run's own variables
// added or replaced.
std::vector<std::string> rank_variables(std::vector<std::string> inherited, int rank, int ranks,
                                        int master_port, const std::string& node_store, int cores);

// Returns the number of cores that this process may use.
int usable_cores();

// Returns the path of a program, looked up in PATH as a shell does. An error if there is none.
Result<std::string> find_program(const std::string& name);

// Starts `path` as spawn() does, with its output going into pipes. With `keep_stdout`, the rank
// writes to this process's standard output instead. `kept_open`: a descriptor that it inherits.
Result<RankProcess> start_rank(int rank, const std::string& path,
                               const std::vector<std::string>& command,
                               const std::vector<std::string>& variables, bool keep_stdout,
                               int kept_open = -1);

// Sends a signal to the rank and to all processes in its process group.
void signal_rank(const RankProcess& process, int signal);

// Returns nothing while the rank runs. Once the rank has ended, kills the rest of its process group
// and reaps the rank.
std::optional<RankExit> reap_rank(RankProcess& process);

}  // namespace copus
