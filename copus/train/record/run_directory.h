// RunDirectory: the folder of a run, with config.toml and with events.jsonl, one JSON object per
// line.
#pragma once

#include <string>

#include "copus/base/json.h"
#include "copus/base/result.h"

namespace copus {

class RunDirectory {
 public:
  // Creates `path` and its parents if they are missing. Refuses a directory that another run is
  // writing to. Refuses a directory with events of an earlier run, unless `append`. The error names
  // the path and the reason. `held`: the descriptor by which the parent process has locked the
  // directory, and which this process inherited; -1 if there is none.
  static Result<RunDirectory> open(const std::string& path, bool append, int held = -1);

  RunDirectory(RunDirectory&&) noexcept;
  RunDirectory& operator=(RunDirectory&&) noexcept;
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;
  ~RunDirectory();

  const std::string& path() const { return path_; }
  // The descriptor that holds the lock. If child processes inherit it, the directory stays locked
  // until the last of them has ended.
  int descriptor() const { return events_; }
  // Returns whether another process has removed the event file, and with it the lock.
  bool removed() const;
  // Writes the whole file or nothing: writes to a temporary file beside it, then renames that.
  Result<void> write_text(const std::string& name, const std::string& content) const;
  // Copies the file `stem` + `suffix` before it is written again. The copies of config.toml are
  // config-1.toml, config-2.toml, ….
  Result<void> keep_before(const std::string& stem, const std::string& suffix) const;
  // Appends one line. It is in the file when this returns. A write that fails (full disk) is an
  // error; then the half of the line that was written is cut off again.
  Result<void> append_event(const Json& event);

 private:
  RunDirectory(std::string path, int events);
  std::string path_;
  int events_ = -1;
};

}  // namespace copus
