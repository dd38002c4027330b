#include "copus/train/health/activity.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "copus/base/text.h"

namespace copus {
namespace {

constexpr std::uint64_t kOurs = 0x636f707573000001;  // "copus", then the version of the page

std::string path_of(const std::string& folder, int rank) {
  return (std::filesystem::path(folder) / fmt::format("rank-{}", rank)).string();
}

// What a rank does, worded to follow "rank 3 has been".
std::string text_of(Doing doing, std::uint64_t number) {
  switch (doing) {
    case Doing::kStarting:
      return "starting";
    case Doing::kReadingData:
      return "reading the data";
    case Doing::kForward:
      return fmt::format("in the forward pass of micro-batch {}", number);
    case Doing::kBackward:
      return fmt::format("in the backward pass of micro-batch {}", number);
    case Doing::kCommunicating:
      return "in communication";
    case Doing::kMeeting:
      return fmt::format("in meeting number {} of all ranks", number);
    case Doing::kOptimizer:
      return "in the optimizer";
    case Doing::kEvaluating:
      return "in the evaluation";
    case Doing::kMoving:
      return "in the change of layout";
    case Doing::kSaving:
      return "saving a checkpoint";
    case Doing::kLoading:
      return "loading a checkpoint";
    case Doing::kBetweenSteps:
      return "in other work";
  }
  return "in unknown work";
}

}  // namespace

std::string activity_folder(const std::string& run_dir) { return run_dir + "/activity"; }

const char* to_string(Operation operation) {
  constexpr std::array<const char*, kOperations> kNames = {
      "all-reduce", "reduce-scatter", "all-gather", "broadcast",
      "send",       "receive",        "connect",    "meeting"};
  return kNames[static_cast<std::size_t>(operation)];
}

Activity::Activity() : page_(new Page()) {}

Result<void> Activity::publish(const std::string& folder, int rank) {
  COPUS_CHECK(fd_ < 0);
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  const std::string path = path_of(folder, rank);
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return make_error("{}: cannot be opened: {}", path, std::strerror(errno));
  const auto give_up = [&](const char* what, int reason) {
    ::close(fd);
    return make_error("{}: {}: {}", path, what, std::strerror(reason));
  };
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return give_up("held by another run", EWOULDBLOCK);
  }
  // Allocates the file's blocks now, so that a full disk is an error here. Otherwise a later store
  // to the page would end the process with SIGBUS.
  if (const int reason = ::posix_fallocate(fd, 0, sizeof(Page)); reason != 0) {
    return give_up("cannot be written", reason);
  }
  void* mapped = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) return give_up("cannot be mapped", errno);
  // The file may hold the page of an earlier attempt: overwrites it.
  Page* shared = static_cast<Page*>(mapped);
  shared->groups = page_->groups;
  for (std::size_t i = 0; i < kWords; ++i) {
    shared->words[i].store(page_->words[i].load(relaxed), relaxed);
  }
  shared->words[kMagic].store(kOurs, relaxed);
  // Sets page_ before it deletes the old page: a signal handler may read page_ at any time.
  delete std::exchange(page_, shared);
  fd_ = fd;
  folder_ = folder;
  path_ = path;
  rank_ = rank;
  return {};
}

Activity::~Activity() {
  if (fd_ < 0) {
    delete page_;
    return;
  }
  ::munmap(page_, sizeof(Page));
  ::close(fd_);
}

void Activity::remove_file() const {
  if (path_.empty()) return;
  ::unlink(path_.c_str());
  ::rmdir(folder_.c_str());  // fails, as it should, while other ranks have files in it
}

int Activity::add_group(const std::string& text) {
  const std::uint64_t index = word(kGroups).load(relaxed);
  if (index >= kMaxGroups) return kMaxGroups;  // the group is shown as "(unnamed)"
  std::array<char, kGroupBytes>& name = page_->groups[index];
  const std::string kept = shortened(text, kGroupBytes - 1);
  std::memcpy(name.data(), kept.c_str(), kept.size() + 1);
  word(kGroups).store(index + 1, std::memory_order_release);
  return static_cast<int>(index);
}

void Activity::tick(std::uint64_t still) {
  word(kTicks).store(word(kTicks).load(relaxed) + 1, relaxed);
  word(kStill).store(still, relaxed);
  // On a network file system, other machines see the page only after it was written back.
  if (fd_ >= 0) ::msync(page_, sizeof(Words), MS_ASYNC);
}

RankActivity Activity::read_page(const Page& page, int rank) {
  const std::uint64_t now = page.words[kDoing].load(relaxed);
  const std::uint64_t groups =
      std::min<std::uint64_t>(page.words[kGroups].load(std::memory_order_acquire), kMaxGroups);
  RankActivity read;
  read.rank = rank;
  read.doing = static_cast<Doing>(std::min<std::uint64_t>(now >> 56U, kDoings - 1));
  read.step = static_cast<std::int64_t>(page.words[kStep].load(relaxed));
  read.changes = page.words[kChanges].load(relaxed);
  read.ticks = page.words[kTicks].load(relaxed);
  read.still = page.words[kStill].load(relaxed);
  read.over = page.words[kOver].load(relaxed) != 0;
  const std::uint64_t number = now & 0xffffffffU;
  read.text = text_of(read.doing, number);
  if (read.doing == Doing::kCommunicating) {
    const auto operation =
        static_cast<Operation>(std::min<std::uint64_t>(now >> 48U & 0xffU, kOperations - 1));
    const std::uint64_t group = now >> 32U & 0xffffU;
    std::string name = "(unnamed)";
    if (group < groups) {
      const std::array<char, kGroupBytes>& bytes = page.groups[group];
      name.assign(bytes.data(), ::strnlen(bytes.data(), kGroupBytes));
    }
    read.text = fmt::format("in {} number {} in group {}", to_string(operation), number, name);
  }
  return read;
}

RankActivity Activity::read() const { return read_page(*page_, rank_); }

std::vector<RankActivity> read_activities(const std::string& folder,
                                          const std::vector<int>& ranks) {
  std::vector<RankActivity> found;
  if (folder.empty()) return found;
  const auto page = std::make_unique<Activity::Page>();
  for (const int rank : ranks) {
    const int fd = ::open(path_of(folder, rank).c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    // Reads the file instead of mapping it: a mapped file that is too short would end this process
    // with SIGBUS.
    const ssize_t n = ::pread(fd, static_cast<void*>(page.get()), sizeof(Activity::Page), 0);
    ::close(fd);
    if (n != static_cast<ssize_t>(sizeof(Activity::Page))) continue;
    if (page->words[Activity::kMagic].load(Activity::relaxed) != kOurs) continue;
    found.push_back(Activity::read_page(*page, rank));
  }
  return found;
}

}  // namespace copus
