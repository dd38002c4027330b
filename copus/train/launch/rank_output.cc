#include "copus/train/launch/rank_output.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

namespace copus {
namespace {

constexpr std::size_t kMaxLastWords = 500;

// Writes the whole text, in one write() if the system allows it. Drops the text on an error, such
// as a reader that is gone.
void write_stderr(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN) {
      pollfd ready = {STDERR_FILENO, POLLOUT, 0};
      ::poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      return;
    }
  }
}

LineBuffer::Sink sink_of(RankProcess& process, const RankStream& stream) {
  const bool is_stderr = &stream == &process.err;
  return [&process, is_stderr](std::string_view line) {
    write_stderr(fmt::format("rank {}: {}\n", process.rank, line));
    if (is_stderr && line.find_first_not_of(" \t\r") != std::string_view::npos) {
      process.last_words = line.substr(0, kMaxLastWords);
    }
  };
}

void end_stream(RankProcess& process, RankStream& stream) {
  stream.lines.flush(sink_of(process, stream));
  ::close(std::exchange(stream.fd, -1));
}

// Reads once and passes the bytes on. Returns false if there was nothing to read.
bool forward_some(RankProcess& process, RankStream& stream) {
  std::array<char, 65536> bytes;
  const ssize_t n = ::read(stream.fd, bytes.data(), bytes.size());
  if (n < 0 && errno == EINTR) return true;
  if (n < 0 && errno == EAGAIN) return false;
  if (n > 0) {
    stream.lines.feed({bytes.data(), static_cast<std::size_t>(n)}, sink_of(process, stream));
  } else {
    end_stream(process, stream);
  }
  return n > 0;
}

}  // namespace

void forward_output(RankProcess& process, RankStream& stream) {
  if (stream.fd >= 0) forward_some(process, stream);
}

void drain_output(RankProcess& process) {
  // All that the rank wrote is in the pipe by now. A process that the rank started and that left
  // its group may still hold the other end and write for ever. So this reads a limited number of
  // times, and does not wait for the end of the pipe.
  constexpr int kReads = 64;
  for (RankStream* stream : {&process.out, &process.err}) {
    for (int i = 0; i < kReads && stream->fd >= 0; ++i) {
      if (!forward_some(process, *stream)) break;
    }
    if (stream->fd >= 0) end_stream(process, *stream);
  }
}

}  // namespace copus
