#include "copus/base/temporary_name.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>

namespace copus {
namespace {

// Names in memory that a signal handler may read: nothing here is allocated or freed.
struct Remembered {
  enum State : int { kFree, kChanging, kSet };
  std::atomic<int> state{kFree};
  std::array<char, PATH_MAX> name = {};
};
std::array<Remembered, 16> remembered;
static_assert(std::atomic<int>::is_always_lock_free);

// Returns -1 if the name is too long or too many are open. A signal then does not remove the file.
int remember(const std::string& name) {
  if (name.size() >= PATH_MAX) return -1;
  for (std::size_t i = 0; i < remembered.size(); ++i) {
    int free = Remembered::kFree;
    if (!remembered[i].state.compare_exchange_strong(free, Remembered::kChanging)) continue;
    name.copy(remembered[i].name.data(), name.size());
    remembered[i].name[name.size()] = '\0';
    remembered[i].state.store(Remembered::kSet);
    return static_cast<int>(i);
  }
  return -1;
}

void say(const char* text) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, std::strlen(text));
}

extern "C" void copus_remove_temporary_files(int number) {
  for (const Remembered& each : remembered) {
    if (each.state.load() == Remembered::kSet) ::unlink(each.name.data());
  }
  const char* name = ::sigabbrev_np(number);
  say("copus: error: stopped by SIG");
  say(name == nullptr ? "?" : name);
  say("\n");
  ::_exit(128 + number);
}

}  // namespace

TemporaryName::TemporaryName(std::string name)
    : name_(std::move(name)), remembered_(remember(name_)) {}

TemporaryName::TemporaryName(TemporaryName&& other) noexcept
    : name_(std::exchange(other.name_, "")), remembered_(std::exchange(other.remembered_, -1)) {}

TemporaryName& TemporaryName::operator=(TemporaryName&& other) noexcept {
  std::swap(name_, other.name_);
  std::swap(remembered_, other.remembered_);
  return *this;
}

TemporaryName::~TemporaryName() {
  if (!name_.empty()) ::unlink(name_.c_str());
  forget();
}

int TemporaryName::rename_to(const std::string& path) {
  if (std::rename(name_.c_str(), path.c_str()) != 0) return errno;
  name_.clear();
  forget();
  return 0;
}

void TemporaryName::forget() {
  if (remembered_ < 0) return;
  remembered[static_cast<std::size_t>(remembered_)].state.store(Remembered::kFree);
  remembered_ = -1;
}

TemporaryFile create_temporary_beside(const std::string& path) {
  std::uint64_t random = 0;
  if (::getrandom(&random, sizeof random, 0) != sizeof random) return {};
  TemporaryFile file{TemporaryName(fmt::format("{}.tmp.{:016x}", path, random)), -1};
  file.fd =
      ::open(file.name.name().c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  return file;
}

void remove_temporary_files_on_signals() {
  struct sigaction action = {};
  action.sa_handler = copus_remove_temporary_files;
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before = {};
    ::sigaction(number, nullptr, &before);
    if (number == SIGHUP && before.sa_handler == SIG_IGN) continue;
    ::sigaction(number, &action, nullptr);
  }
}

}  // namespace copus
