// For tests: the paths that this program has synced with fsync(). Include it in only one source
// file of a program, because its fsync() replaces the C library's in the whole program.
//
// Thread-safe, because the program's other tests may sync files in threads of their own.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <mutex>
#include <set>
#include <string>
#include <system_error>
#include <utility>

namespace copus {

class SyncedPaths {
 public:
  void add(const std::string& path) {
    const std::lock_guard<std::mutex> lock(mutex_);
    paths_.insert(path);
  }
  // Returns the paths that were synced since the last call.
  std::set<std::string> take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(paths_, {});
  }

 private:
  std::mutex mutex_;
  std::set<std::string> paths_;
};

inline SyncedPaths& synced_paths() {
  static SyncedPaths paths;
  return paths;
}

}  // namespace copus

extern "C" int fsync(int fd) {
  std::error_code unknown;
  copus::synced_paths().add(
      std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), unknown).string());
  return static_cast<int>(::syscall(SYS_fsync, fd));
}
