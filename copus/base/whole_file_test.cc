#include "copus/base/whole_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>

#include "copus/base/test_folder.h"

namespace copus {
namespace {

namespace fs = std::filesystem;

TEST(WholeFile, ReplacesAndLeavesNothingBeside) {
  const TestFolder folder;
  ASSERT_TRUE(write_whole_file(folder.path("a"), "old"));
  ASSERT_TRUE(write_whole_file(folder.path("a"), "new"));
  EXPECT_EQ(folder.read("a"), "new");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"a"});
}

TEST(WholeFile, SaysWhatStoppedIt) {
  const TestFolder folder;
  const std::string path = folder.path("no/such/folder");
  EXPECT_EQ(write_whole_file(path, "x").error().message,
            path + ": cannot be written: No such file or directory");
  EXPECT_EQ(write_whole_file("/dev/full", "x").error().message,
            "/dev/full: cannot be written: No space left on device");
  EXPECT_EQ(write_whole_file(folder.path(), "x").error().message,
            folder.path() + ": cannot be written: Is a directory");
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
}

TEST(WholeFile, GoesWhereLinksLead) {
  const TestFolder folder;
  fs::create_directory(folder.path("inner"));
  folder.write("inner/file", "old");
  fs::create_symlink("inner/file", folder.path("near"));
  fs::create_symlink("near", folder.path("far"));
  fs::create_symlink("inner/later", folder.path("to nothing"));
  ASSERT_TRUE(write_whole_file(folder.path("far"), "new"));
  ASSERT_TRUE(write_whole_file(folder.path("to nothing"), "first"));
  EXPECT_EQ(folder.read("inner/file"), "new");
  EXPECT_EQ(folder.read("inner/later"), "first");
  for (const char* link : {"near", "far", "to nothing"})
    EXPECT_TRUE(fs::is_symlink(folder.path(link))) << link;
}

TEST(WholeFile, APipeIsWrittenToNotReplaced) {
  const TestFolder folder;
  ASSERT_EQ(::mkfifo(folder.path("pipe").c_str(), 0600), 0);
  const int reader = ::open(folder.path("pipe").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  ASSERT_TRUE(write_whole_file(folder.path("pipe"), "through"));
  std::array<char, 16> got = {};
  EXPECT_EQ(::read(reader, got.data(), got.size()), 7);
  EXPECT_STREQ(got.data(), "through");
  ::close(reader);
  EXPECT_TRUE(fs::is_fifo(folder.path("pipe")));
}

}  // namespace
}  // namespace copus
