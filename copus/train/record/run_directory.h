// The run directory: config.toml and events.jsonl, one JSON object a line.
#pragma once

#include <string>

#include "copus/base/json.h"
#include "copus/base/result.h"

namespace copus {

class RunDirectory {
 public:
  // Creates `path` and its parents where they are missing. Refuses a directory that another run
  // writes to now, and one that holds events of an earlier run, unless `append`. The error names
  // the path and the reason. `held`: a descriptor that the process which started this one has
  // locked the directory by, and left open for it; -1: none.
  static Result<RunDirectory> open(const std::string& path, bool append, int held = -1);

  RunDirectory(RunDirectory&&) noexcept;
  RunDirectory& operator=(RunDirectory&&) noexcept;
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;
  ~RunDirectory();

  const std::string& path() const { return path_; }
  // What the lock goes with, for processes that this one starts: it stays until the last has ended.
  int descriptor() const { return events_; }
  // By somebody else, and with it the run's record and its lock.
  bool removed() const;
  // Whole file or none: written beside, then renamed.
  Result<void> write_text(const std::string& name, const std::string& content) const;
  // Keeps a copy of the file `stem` + `suffix`, which is to be written anew: config-1.toml,
  // config-2.toml, ….
  Result<void> keep_before(const std::string& stem, const std::string& suffix) const;
  // One line, in the file when this returns. A write that fails (full disk) is an error and leaves
  // no half line behind.
  Result<void> append_event(const Json& event);

 private:
  RunDirectory(std::string path, int events);
  std::string path_;
  int events_ = -1;
};

}  // namespace copus
