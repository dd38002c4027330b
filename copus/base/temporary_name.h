// The temporary name of a file that is being written. The destructor removes the file, unless it
// was renamed. After remove_temporary_files_on_signals(), a signal that ends the program removes it
// too. The signal handler knows up to 16 names at once, and none of PATH_MAX or more characters; a
// signal leaves the other files.
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
  // Renames the file to its final name. Returns 0 or errno.
  int rename_to(const std::string& path);

 private:
  void forget();

  std::string name_;     // empty: none
  int remembered_ = -1;  // its index in the list that the signal handler reads; -1: not in the list
};

// A new file beside `path`, open for reading and writing. Its name is random, and creation fails if
// the name exists. So other users who may write to the folder cannot put a link in its place.
struct TemporaryFile {
  TemporaryName name;
  int fd = -1;  // the caller closes it; -1: failed, with the reason in errno
};
TemporaryFile create_temporary_beside(const std::string& path);

// From now on SIGINT, SIGTERM and SIGHUP remove the files whose names the handler knows, print a
// message and end the program with exit code 128 + the signal's number. An ignored SIGHUP (nohup)
// stays ignored.
void remove_temporary_files_on_signals();

}  // namespace copus
