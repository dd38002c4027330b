// The name of a file while it is written. It is removed with the object, unless it was renamed, and
// by a signal that ends the program, where that is asked for.
//
// Thread-safe.
#pragma once

#include <string>

namespace copus {

class TemporaryName {
 public:
  TemporaryName() = default;
  explicit TemporaryName(std::string name);
  TemporaryName(TemporaryName&& other) noexcept;
  TemporaryName& operator=(TemporaryName&& other) noexcept;
  ~TemporaryName();

  const std::string& name() const { return name_; }
  // Gives the file its own name. 0, or what stopped it (errno).
  int rename_to(const std::string& path);

 private:
  void forget();

  std::string name_;     // empty: none
  int remembered_ = -1;  // where signals look for it; -1: they do not
};

// A new file beside `path`, open to be written and read. Its name is random and nothing may be
// there: in a folder that others can write to, nobody can put a link in its place.
struct TemporaryFile {
  TemporaryName name;
  int fd = -1;  // the caller closes it; -1: errno says why there is none
};
TemporaryFile create_temporary_beside(const std::string& path);

// From here on SIGINT, SIGTERM and SIGHUP (where it is not ignored, as by nohup) remove the files
// of all such names and end the program, which says so, with 128 + the signal's number.
void remove_temporary_files_on_signals();

}  // namespace copus
