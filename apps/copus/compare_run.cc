#include "apps/copus/compare_run.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "copus/base/seconds_since.h"
#include "copus/base/text.h"
#include "copus/events/event_log.h"

namespace copus {
namespace {

using Clock = std::chrono::steady_clock;

// Time that a run may take beyond its own limit, which counts from its first step.
constexpr Seconds kAfterLimit(300);

std::string last_line(const std::string& path) {
  std::ifstream in(path);
  std::string line, last;
  while (std::getline(in, line)) {
    if (!line.empty()) last = line;
  }
  return shortened(last, 300);
}

}  // namespace

void Stop::look(const ChildProcess& child) {
  pollfd ready = {signals_.fd(), POLLIN, 0};
  ::poll(&ready, 1, 200);
  for (const int number : signals_.take()) {
    if (signal_ != 0 && number == SIGINT) child.signal(SIGKILL);
    if (signal_ != 0) continue;
    signal_ = number;
    since_ = Clock::now();
    child.signal(SIGTERM);
  }
  if (signal_ != 0 && Clock::now() - since_ > std::chrono::minutes(1)) child.signal(SIGKILL);
}

Result<RecordedRun> train_live(const LiveOptions& o, const std::string& name, std::int64_t seed,
                               TrainArgs& train, Stop& stop) {
  std::string folder_name = name;
  std::replace(folder_name.begin(), folder_name.end(), ':', '-');
  const std::string folder = fmt::format("{}/{}-seed{}", o.folder, folder_name, seed);
  const std::string log = folder + ".log";
  give(train.config, o.config);
  give(train.run_dir, folder);
  give(train.seed, seed);
  give(train.optimizer.base_batch, o.start_batch);
  give(train.checkpoint.every, 0);
  give(train.limits.for_time, o.limit);
  std::vector<std::string> command = {o.program, "train"};
  for (std::string& word : command_words(train, From::kCommandLine)) {
    command.push_back(std::move(word));
  }
  RecordedRun run(o.losses, o.window);
  COPUS_TRY(ChildProcess child, ChildProcess::start(command, log));
  EventFollower events(events_path(folder));
  const auto add = [&run](const TimedEvent& event, const std::string& where) {
    return run.add(event, where);
  };
  const auto deadline = Clock::now() + to_duration(o.limit + kAfterLimit);
  bool stopping = false;
  while (!child.ended()) {
    stop.look(child);
    COPUS_TRY_VOID(events.read(add));
    if (run.reached() && !std::exchange(stopping, true)) child.signal(SIGTERM);
    if (Clock::now() > deadline) {
      return make_error("{}, seed {}: not ended {} after its limit; see {}", name, seed,
                        human_seconds(kAfterLimit), log);
    }
  }
  if (stop.signal() != 0) {
    return make_error("stopped by {} in {}, seed {}", signal_name(stop.signal()), name, seed);
  }
  COPUS_TRY_VOID(events.read(add));
  const int code = child.code();
  const bool stopped = stopping && (code == 0 || code == 128 + SIGTERM);
  if (code != 0 && !stopped) {
    return make_error("{}, seed {}: exit code {}: {} (see {})", name, seed, code, last_line(log),
                      log);
  }
  return run;
}

}  // namespace copus
