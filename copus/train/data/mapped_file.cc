#include "copus/train/data/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <limits>
#include <system_error>
#include <utility>

namespace copus {

std::string errno_text() { return std::generic_category().message(errno); }

Result<MappedFile> MappedFile::open(const std::string& path) {
  // O_NONBLOCK: if the path is a pipe, open() must not wait for its other end.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return make_error("{}: cannot open: {}", path, errno_text());
  struct stat info {};
  if (::fstat(fd, &info) != 0) {
    const Error error = make_error("{}: cannot open: {}", path, errno_text());
    ::close(fd);
    return error;
  }
  if (!S_ISREG(info.st_mode)) {
    ::close(fd);
    return make_error("{}: got {}; want a regular file", path,
                      S_ISDIR(info.st_mode) ? "a folder" : "a device or a pipe");
  }
  if (info.st_size == 0) {
    ::close(fd);
    return make_error("{}: got an empty file; want tokens in it", path);
  }
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (size > std::numeric_limits<std::size_t>::max()) {
    ::close(fd);
    return make_error("{}: got {} bytes, more than can be mapped", path, size);
  }
  void* address = ::mmap(nullptr, static_cast<std::size_t>(size), PROT_READ, MAP_SHARED, fd, 0);
  const std::string why = address == MAP_FAILED ? errno_text() : std::string();
  ::close(fd);
  if (address == MAP_FAILED) return make_error("{}: cannot map {} bytes: {}", path, size, why);
  MappedFile file;
  file.bytes_ = {static_cast<const std::byte*>(address), static_cast<std::size_t>(size)};
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace copus
