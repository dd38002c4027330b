#include "copus/base/whole_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "copus/base/temporary_name.h"

namespace copus {
namespace {

// The path that `path` leads to through symbolic links, even if the last link's target does not
// exist yet.
std::string behind_links(const std::string& path) {
  std::error_code failed;
  std::filesystem::path at = path;
  for (int hops = 0; hops < 40 && std::filesystem::is_symlink(at, failed); ++hops) {
    const std::filesystem::path to = std::filesystem::read_symlink(at, failed);
    if (failed) break;
    at = at.parent_path() / to;
  }
  return at.string();
}

bool is_no_file(const std::string& path) {
  struct stat found = {};
  return ::stat(path.c_str(), &found) == 0 && !S_ISREG(found.st_mode) && !S_ISDIR(found.st_mode);
}

// The descriptor of standard output or error if `path` is another name of it, such as /dev/stdout;
// otherwise -1.
int standard_stream(const std::string& path) {
  struct stat found = {}, open = {};
  if (::stat(path.c_str(), &found) != 0) return -1;
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    if (::fstat(fd, &open) == 0 && open.st_dev == found.st_dev && open.st_ino == found.st_ino) {
      return fd;
    }
  }
  return -1;
}

int write_in_place(const std::string& path, std::string_view content) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return errno;
  const int reason = write_all(fd, content);
  return ::close(fd) != 0 && reason == 0 ? errno : reason;
}

int write_and_rename(const std::string& path, std::string_view content) {
  auto [beside, fd] = create_temporary_beside(path);
  if (fd < 0) return errno;
  int reason = write_all(fd, content);
  if (reason == 0 && ::fsync(fd) != 0) reason = errno;
  if (::close(fd) != 0 && reason == 0) reason = errno;
  return reason == 0 ? beside.rename_to(path) : reason;
}

}  // namespace

int write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0) return EIO;  // no progress and no error: the loop would not end
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return 0;
}

Result<std::string> read_whole_file(const std::string& path, std::string_view kind,
                                    std::size_t limit) {
  namespace fs = std::filesystem;
  std::error_code failed;
  const fs::file_status status = fs::status(path, failed);
  if (status.type() == fs::file_type::not_found) {
    return make_error("{}: no such file; want a {} file", path.empty() ? "\"\"" : path, kind);
  }
  if (failed) return make_error("{}: cannot be read: {}", path, failed.message());
  if (status.type() == fs::file_type::directory) {
    return make_error("{}: got a folder; want a {} file", path, kind);
  }
  if (status.type() != fs::file_type::regular) {
    return make_error("{}: got a device, pipe or socket; want a regular {} file", path, kind);
  }
  const std::uintmax_t size = fs::file_size(path, failed);
  if (failed) return make_error("{}: cannot be read: {}", path, failed.message());
  const auto too_large = [&](std::uintmax_t bytes) {
    return make_error("{}: got {} bytes; want at most {}", path, bytes, limit);
  };
  if (size > limit) return too_large(size);
  std::ifstream file(path, std::ios::binary);
  if (!file) return make_error("{}: cannot be opened; want a readable {} file", path, kind);
  // The file may have grown or been replaced since its size was read, so the limit is checked
  // again.
  std::string text;
  std::array<char, std::size_t{1} << 16> piece = {};
  while (file.read(piece.data(), piece.size()) || file.gcount() > 0) {
    text.append(piece.data(), static_cast<std::size_t>(file.gcount()));
    if (text.size() > limit) return too_large(text.size());
  }
  if (file.bad()) return make_error("{}: reading failed; want a readable {} file", path, kind);
  return text;
}

Result<void> write_whole_file(const std::string& path, std::string_view content) {
  int reason = 0;
  if (const int fd = standard_stream(path); fd >= 0) {
    std::fflush(stdout);  // earlier output comes first
    reason = write_all(fd, content);
    if (reason == EPIPE) reason = 0;  // the reader needs no more
  } else if (is_no_file(path)) {
    reason = write_in_place(path, content);
  } else {
    reason = write_and_rename(behind_links(path), content);
  }
  if (reason == 0) return {};
  return make_error("{}: cannot be written: {}", path, std::strerror(reason));
}

Result<void> sync_folder(const std::string& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const int reason = fd < 0 || ::fsync(fd) != 0 ? errno : 0;
  if (fd >= 0) ::close(fd);
  if (reason == 0) return {};
  return make_error("{}: cannot be {}: {}", folder, fd < 0 ? "opened" : "synced",
                    std::strerror(reason));
}

Result<void> create_folders(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code failed;
  // The name of a new folder is on disk once its parent is synced.
  std::vector<fs::path> parents;
  for (fs::path at = (fs::absolute(path, failed) / "").parent_path();
       at.has_relative_path() && !fs::exists(at, failed); at = at.parent_path()) {
    parents.push_back(at.parent_path());
  }
  fs::create_directories(path, failed);
  if (failed) return make_error("{}: cannot be created: {}", path, failed.message());
  for (const fs::path& parent : parents) {
    // A parent of another user may allow us to enter but not to open it; then it cannot be synced.
    if (::access(parent.c_str(), R_OK) == 0) COPUS_TRY_VOID(sync_folder(parent.string()));
  }
  return {};
}

}  // namespace copus
