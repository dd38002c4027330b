#include "copus/train/record/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "copus/base/whole_file.h"
#include "copus/events/event_log.h"

namespace copus {
namespace {

std::string inside(const std::string& folder, const std::string& name) {
  return (std::filesystem::path(folder) / name).string();
}

Result<off_t> size_of(int fd, const std::string& path) {
  struct stat status = {};
  if (::fstat(fd, &status) == 0) return status.st_size;
  return make_error("{}: cannot be read: {}", path, std::strerror(errno));
}

// Returns where the last whole line ends: 0 if there is no whole line.
Result<off_t> end_of_lines(int fd, off_t size, const std::string& path) {
  std::array<char, 4096> block = {};
  while (size > 0) {
    const off_t begin = std::max<off_t>(0, size - static_cast<off_t>(block.size()));
    const auto wanted = static_cast<std::size_t>(size - begin);
    const ssize_t n = ::pread(fd, block.data(), wanted, begin);
    if (n < 0 && errno == EINTR) continue;
    if (n != static_cast<ssize_t>(wanted)) {
      return make_error("{}: cannot be read: {}", path, std::strerror(n < 0 ? errno : EIO));
    }
    const std::size_t newline = std::string_view(block.data(), wanted).rfind('\n');
    if (newline != std::string_view::npos) return begin + static_cast<off_t>(newline) + 1;
    size = begin;
  }
  return off_t{0};
}

// A process that died while it wrote may have left half a line. Cuts it off, so that the next line
// does not follow it on the same line.
Result<void> cut_torn_line(int fd, off_t size, const std::string& path) {
  COPUS_TRY(const off_t whole, end_of_lines(fd, size, path));
  if (whole == size || ::ftruncate(fd, whole) == 0) return {};
  return make_error("{}: its unfinished last line cannot be cut off: {}", path,
                    std::strerror(errno));
}

// Returns whether `fd` is open on the file at `path`.
bool leads_to(int fd, const std::string& path) {
  struct stat open = {}, named = {};
  return fd >= 0 && ::fstat(fd, &open) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

Result<void> ready_for_events(int fd, const std::string& folder, bool append) {
  const std::string path = events_path(folder);
  // Locks the file, since two runs at once would mix their lines. The lock ends with the process. A
  // file system without locks is not an error, and a device (/dev/null) may have several writers.
  struct stat status = {};
  const bool is_file = ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
  if (is_file && ::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return make_error("{}: another run is writing to it; want another directory", folder);
  }
  COPUS_TRY(const off_t size, size_of(fd, path));
  if (append) return cut_torn_line(fd, size, path);
  if (size == 0) return {};
  return make_error(
      "{}: holds the events of an earlier run (events.jsonl, {} bytes); want another directory, or "
      "resume that run",
      folder, size);
}

}  // namespace

Result<RunDirectory> RunDirectory::open(const std::string& path, bool append, int held) {
  if (path.empty()) return field_error("run directory", "got \"\"; want a path");
  COPUS_TRY_VOID(create_folders(path));
  const std::string events = events_path(path);
  // Uses the descriptor that holds the lock: a second open() of the file would not have the lock.
  const int opened = leads_to(held, events)
                         ? held
                         : ::open(events.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  // Moves the descriptor above the standard streams. If one of these is closed, open() may have
  // returned its number, and printed text would go into the event file.
  const int fd = opened < 0 ? -1 : ::fcntl(opened, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (opened >= 0 && opened != held) ::close(opened);
  if (fd < 0) return make_error("{}: cannot be opened: {}", events, std::strerror(errno));
  RunDirectory directory(path, fd);
  COPUS_TRY_VOID(ready_for_events(fd, path, append));
  return directory;
}

RunDirectory::RunDirectory(std::string path, int events)
    : path_(std::move(path)), events_(events) {}

RunDirectory::RunDirectory(RunDirectory&& other) noexcept
    : path_(std::move(other.path_)), events_(std::exchange(other.events_, -1)) {}

RunDirectory& RunDirectory::operator=(RunDirectory&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(events_, other.events_);
  return *this;
}

RunDirectory::~RunDirectory() {
  if (events_ >= 0) ::close(events_);
}

Result<void> RunDirectory::write_text(const std::string& name, const std::string& content) const {
  return write_whole_file(inside(path_, name), content);
}

Result<void> RunDirectory::keep_before(const std::string& stem, const std::string& suffix) const {
  COPUS_TRY(const std::string content,
            read_whole_file(inside(path_, stem + suffix), "text", std::size_t{1} << 20U));
  std::string kept;
  std::error_code failed;
  for (int number = 1; kept.empty(); ++number) {
    const std::string name = fmt::format("{}-{}{}", stem, number, suffix);
    if (!std::filesystem::exists(inside(path_, name), failed)) kept = name;
  }
  return write_text(kept, content);
}

bool RunDirectory::removed() const {
  struct stat status = {};
  return ::fstat(events_, &status) == 0 && status.st_nlink == 0;
}

Result<void> RunDirectory::append_event(const Json& event) {
  COPUS_CHECK(events_ >= 0);
  const std::string path = events_path(path_);
  // Replaces bytes that are not UTF-8 (such as a path in a message), so that the line stays JSON.
  const std::string line = event.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  if (removed()) return make_error("{}: was removed while the run wrote to it", path);
  COPUS_TRY(const off_t before, size_of(events_, path));
  const int reason = write_all(events_, line);
  if (reason == 0) return {};
  COPUS_TRY(const off_t after, size_of(events_, path));
  if (after != before && ::ftruncate(events_, before) != 0) {
    return make_error(
        "{}: an event cannot be written: {}; half of its line is left and cannot be cut off: {}",
        path, std::strerror(reason), std::strerror(errno));
  }
  return make_error("{}: an event cannot be written: {}", path, std::strerror(reason));
}

}  // namespace copus
