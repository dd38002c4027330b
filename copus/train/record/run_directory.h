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
  // the path and the reason.
  static Result<RunDirectory> open(const std::string& path, bool append);

  RunDirectory(RunDirectory&&) noexcept;
  RunDirectory& operator=(RunDirectory&&) noexcept;
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;
  ~RunDirectory();

  const std::string& path() const { return path_; }
  // Whole file or none: written beside, then renamed.
  Result<void> write_text(const std::string& name, const std::string& content) const;
  // One line, in the file when this returns. A write that fails (full disk) is an error and leaves
  // no half line behind.
  Result<void> append_event(const Json& event);

 private:
  RunDirectory(std::string path, int events);
  std::string path_;
  int events_ = -1;
};

}  // namespace copus
