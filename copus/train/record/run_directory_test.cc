#include "copus/train/record/run_directory.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <utility>

#include "copus/base/synced_paths.h"

namespace copus {
namespace {

class RunDirectoryTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              fmt::format("copus_record_{}_{}", ::getpid(),
                          testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string run_path() const { return (folder_ / "runs" / "one").string(); }
  std::string events_path() const { return run_path() + "/events.jsonl"; }

  RunDirectory opened(bool append = false) const {
    Result<RunDirectory> run = RunDirectory::open(run_path(), append);
    EXPECT_TRUE(run) << run.error().message;
    return std::move(run).value();
  }

  static std::string text_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string events() const { return text_of(events_path()); }
  void set_events(const std::string& text) const {
    std::filesystem::create_directories(run_path());
    std::ofstream(events_path(), std::ios::binary) << text;
  }

  std::filesystem::path folder_;
};

// While a FullDisk lives, no file of this process can grow beyond `bytes`, as on a full disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit = {bytes, before_.rlim_max};
    handler_ = ::signal(SIGXFSZ, SIG_IGN);
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_ = {};
  void (*handler_)(int) = nullptr;
};

TEST_F(RunDirectoryTest, AllNewFoldersAreOnTheDiskFirst) {
  synced_paths().take();
  opened();
  const std::set<std::string> synced = synced_paths().take();
  const std::filesystem::path existed = std::filesystem::canonical(folder_);
  EXPECT_TRUE(synced.contains((existed / "runs").string())) << "it names the run";
  EXPECT_TRUE(synced.contains(existed.string())) << "it names runs/";
}

TEST_F(RunDirectoryTest, EventsAreLinesInTheirOrder) {
  RunDirectory run = opened();
  EXPECT_EQ(run.path(), run_path());
  ASSERT_TRUE(run.append_event({{"event", "step"}, {"t", 0.5}, {"loss", 2.25}}));
  EXPECT_EQ(events(), "{\"event\":\"step\",\"t\":0.5,\"loss\":2.25}\n");
  ASSERT_TRUE(run.append_event({{"event", "end"}, {"t", 1}}));
  EXPECT_EQ(events(),
            "{\"event\":\"step\",\"t\":0.5,\"loss\":2.25}\n{\"event\":\"end\",\"t\":1}\n");
}

TEST_F(RunDirectoryTest, EveryEventStaysOneLineOfJson) {
  RunDirectory run = opened();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  ASSERT_TRUE(run.append_event({{"loss", nan}, {"why", "two\nlines"}, {"path", "\xff"}}));
  EXPECT_EQ(events(), "{\"loss\":null,\"why\":\"two\\nlines\",\"path\":\"\xEF\xBF\xBD\"}\n");
}

TEST_F(RunDirectoryTest, RefusesTheEventsOfAnEarlierRunUnlessItAppends) {
  set_events("{\"event\":\"end\"}\n");
  const Result<RunDirectory> again = RunDirectory::open(run_path(), false);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().message,
            run_path() +
                ": holds the events of an earlier run (events.jsonl, 16 bytes); want another "
                "directory, or resume that run");
  RunDirectory run = opened(true);
  ASSERT_TRUE(run.append_event({{"event", "step"}}));
  EXPECT_EQ(events(), "{\"event\":\"end\"}\n{\"event\":\"step\"}\n");
}

TEST_F(RunDirectoryTest, AnEmptyRunIsNoEarlierRun) {
  set_events("");
  opened();
}

TEST_F(RunDirectoryTest, AppendCutsATornLastLineOff) {
  const std::string long_torn(10'000, 'x');  // longer than a block of the search
  for (const std::string& torn : {std::string("{\"event\":"), std::string("x"), long_torn}) {
    set_events("{\"event\":\"a\"}\n" + torn);
    ASSERT_TRUE(opened(true).append_event({{"event", "b"}}));
    EXPECT_EQ(events(), "{\"event\":\"a\"}\n{\"event\":\"b\"}\n");
    set_events(torn);
    ASSERT_TRUE(opened(true).append_event({{"event", "b"}}));
    EXPECT_EQ(events(), "{\"event\":\"b\"}\n");
  }
}

TEST_F(RunDirectoryTest, AFullDiskLeavesNoHalfLine) {
  RunDirectory run = opened();
  ASSERT_TRUE(run.append_event({{"event", "first"}}));
  const std::string before = events();
  const Json long_event = {{"event", std::string(1000, 'x')}};
  for (const std::size_t room : {0u, 1u, 500u, 1000u}) {
    const FullDisk full(before.size() + room);
    const Result<void> written = run.append_event(long_event);
    ASSERT_FALSE(written);
    EXPECT_EQ(written.error().message,
              events_path() + ": an event cannot be written: File too large");
    EXPECT_EQ(events(), before);
  }
  ASSERT_TRUE(run.append_event({{"event", "second"}}));
  EXPECT_EQ(events(), "{\"event\":\"first\"}\n{\"event\":\"second\"}\n");
}

TEST_F(RunDirectoryTest, TextIsReplacedWholeOrNotAtAll) {
  const RunDirectory run = opened();
  const std::string path = run_path() + "/config.toml";
  ASSERT_TRUE(run.write_text("config.toml", "old = 1\n"));
  ASSERT_TRUE(run.write_text("config.toml", "new = 1\n"));
  EXPECT_EQ(text_of(path), "new = 1\n");
  {
    const FullDisk full(10);
    const Result<void> written = run.write_text("config.toml", std::string(100, 'x'));
    ASSERT_FALSE(written);
    EXPECT_EQ(written.error().message, path + ": cannot be written: File too large");
  }
  EXPECT_EQ(text_of(path), "new = 1\n");
  // The directory holds config.toml and the events, and no temporary file.
  const std::filesystem::directory_iterator files(run_path());
  EXPECT_EQ(std::distance(begin(files), end(files)), 2);
  EXPECT_FALSE(run.write_text("no/such/folder.txt", "x"));
}

TEST_F(RunDirectoryTest, ErrorsNameThePathAndTheReason) {
  const std::string file = (folder_ / "file").string();
  std::ofstream(file) << "x";
  EXPECT_EQ(RunDirectory::open(file, false).error().message,
            file + ": cannot be created: Not a directory");
  EXPECT_NE(RunDirectory::open(file + "/run", false).error().message.find("Not a directory"),
            std::string::npos);
  std::filesystem::create_directories(events_path());
  EXPECT_EQ(RunDirectory::open(run_path(), false).error().message,
            events_path() + ": cannot be opened: Is a directory");
  EXPECT_FALSE(RunDirectory::open("", false));
}

TEST_F(RunDirectoryTest, MovesKeepTheEventsOpen) {
  RunDirectory first = opened();
  RunDirectory second = std::move(first);
  ASSERT_TRUE(second.append_event({{"event", "a"}}));
  Result<RunDirectory> other = RunDirectory::open(run_path() + "-other", false);
  ASSERT_TRUE(other);
  second = std::move(other).value();
  ASSERT_TRUE(second.append_event({{"event", "b"}}));
  EXPECT_EQ(events(), "{\"event\":\"a\"}\n");
  EXPECT_EQ(text_of(run_path() + "-other/events.jsonl"), "{\"event\":\"b\"}\n");
}

}  // namespace
}  // namespace copus
