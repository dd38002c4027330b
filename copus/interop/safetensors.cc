#include "copus/interop/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "copus/base/checksum.h"
#include "copus/base/whole_file.h"

namespace copus {
namespace {

Error failed(const std::string& path, const char* what) {
  return make_error("{}: cannot be {}: {}", path, what, std::strerror(errno));
}

Result<void> read_all(int fd, std::int64_t at, std::span<std::byte> out, const std::string& path) {
  while (!out.empty()) {
    const ssize_t n = ::pread(fd, out.data(), out.size(), at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed(path, "read");
    if (n == 0) return make_error("{}: ends at byte {}; want {} more", path, at, out.size());
    out = out.subspan(static_cast<std::size_t>(n));
    at += n;
  }
  return {};
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  SafetensorsFile file;
  file.path_ = path;
  file.fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file.fd_ < 0) return failed(path, "opened");
  struct stat status = {};
  if (::fstat(file.fd_, &status) != 0) return failed(path, "read");
  if (!S_ISREG(status.st_mode)) return make_error("{}: is not a regular file", path);
  std::string head(std::min<std::size_t>(8, static_cast<std::size_t>(status.st_size)), '\0');
  const auto bytes = [&] { return std::as_writable_bytes(std::span(head.data(), head.size())); };
  COPUS_TRY_VOID(read_all(file.fd_, 0, bytes(), path));
  COPUS_TRY(const std::int64_t header_bytes, safetensors_header_bytes(head, status.st_size, path));
  head.resize(static_cast<std::size_t>(header_bytes));
  COPUS_TRY_VOID(read_all(file.fd_, 0, bytes(), path));
  COPUS_TRY(file.header_, parse_safetensors_header(head, status.st_size, path));
  return file;
}

SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      header_(std::move(other.header_)) {}

SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(header_, other.header_);
  return *this;
}

SafetensorsFile::~SafetensorsFile() {
  if (fd_ >= 0) ::close(fd_);
}

Result<void> SafetensorsFile::read(const SafetensorsArray& array, std::int64_t offset,
                                   std::span<std::byte> out) const {
  const auto size = static_cast<std::int64_t>(out.size());
  if (offset < 0 || offset > array.end - array.begin || size > array.end - array.begin - offset) {
    return make_error("{}: {}: asked for {} bytes from byte {}; the array has {}", path_,
                      array.name, size, offset, array.end - array.begin);
  }
  return read_all(fd_, header_.data_begin + array.begin + offset, out, path_);
}

struct SafetensorsWriter::State {
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (fd < 0) return;
    ::close(fd);
    ::unlink(path.c_str());
  }

  std::string path;
  int fd = -1;
  std::int64_t bytes = 0;  // written
  std::int64_t left = 0;   // bytes of the arrays that are still to be written
  Xxh3 sum;

  Result<void> put(std::span<const std::byte> data) {
    // Pieces are small enough that write_all() still finds in the cache what the checksum read.
    constexpr std::size_t kPiece = 1 << 20;
    while (!data.empty()) {
      const auto piece = data.first(std::min(kPiece, data.size()));
      sum.add(piece);
      const std::string_view text(reinterpret_cast<const char*>(piece.data()), piece.size());
      if (const int reason = write_all(fd, text); reason != 0) {
        return make_error("{}: cannot be written: {}", path, std::strerror(reason));
      }
      bytes += static_cast<std::int64_t>(piece.size());
      data = data.subspan(piece.size());
    }
    return {};
  }
};

SafetensorsWriter::SafetensorsWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&&) noexcept = default;
SafetensorsWriter& SafetensorsWriter::operator=(SafetensorsWriter&&) noexcept = default;
SafetensorsWriter::~SafetensorsWriter() = default;

Result<SafetensorsWriter> SafetensorsWriter::create(
    const std::string& path, std::vector<SafetensorsArray> arrays,
    const std::map<std::string, std::string>& metadata) {
  COPUS_TRY(const std::string head, print_safetensors_header(arrays, metadata, path));
  auto state = std::make_unique<State>();
  state->path = path;
  state->left = arrays.empty() ? 0 : arrays.back().end;
  state->fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (state->fd < 0) return failed(path, "written");
  COPUS_TRY_VOID(state->put(std::as_bytes(std::span(head.data(), head.size()))));
  return SafetensorsWriter(std::move(state));
}

Result<void> SafetensorsWriter::write(std::span<const std::byte> bytes) {
  const auto size = static_cast<std::int64_t>(bytes.size());
  if (size > state_->left) {
    return make_error("{}: got {} more bytes; want at most {}, the rest of the arrays",
                      state_->path, size, state_->left);
  }
  COPUS_TRY_VOID(state_->put(bytes));
  state_->left -= size;
  return {};
}

Result<SafetensorsWriter::Written> SafetensorsWriter::finish() {
  if (state_->left != 0) {
    return make_error("{}: {} bytes of its arrays were not written", state_->path, state_->left);
  }
  if (::fsync(state_->fd) != 0) return failed(state_->path, "written");
  const int fd = std::exchange(state_->fd, -1);
  if (::close(fd) != 0) {
    const Error error = failed(state_->path, "written");
    ::unlink(state_->path.c_str());
    return error;
  }
  return Written{state_->bytes, state_->sum.digest()};
}

}  // namespace copus
