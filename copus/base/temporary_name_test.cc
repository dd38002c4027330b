#include "copus/base/temporary_name.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "copus/base/test_folder.h"

namespace copus {
namespace {

std::vector<std::string> sorted_names(const TestFolder& folder) {
  std::vector<std::string> names = folder.names();
  std::sort(names.begin(), names.end());
  return names;
}

TEST(TemporaryName, IsGoneWithTheObjectUnlessItWasRenamed) {
  const TestFolder folder;
  {
    const TemporaryName gone(folder.write("a.tmp", "a"));
    TemporaryName kept(folder.write("b.tmp", "b"));
    EXPECT_EQ(kept.rename_to(folder.path("b")), 0);
    folder.write("b.tmp", "another's");
  }
  EXPECT_EQ(sorted_names(folder), (std::vector<std::string>{"b", "b.tmp"}));
}

TEST(TemporaryName, StaysWhereItCannotBeRenamed) {
  const TestFolder folder;
  std::optional<TemporaryName> name(folder.write("a.tmp", "a"));
  EXPECT_EQ(name->rename_to(folder.path("no/such/a")), ENOENT);
  EXPECT_EQ(folder.names(), std::vector<std::string>{"a.tmp"});
  name.reset();
  EXPECT_TRUE(folder.names().empty());
}

TEST(TemporaryFile, IsNewBesideItsPathAndTakesItsName) {
  const TestFolder folder;
  for (int round = 0; round < 2; ++round) {
    auto [name, fd] = create_temporary_beside(folder.path("a"));
    ASSERT_GE(fd, 0);
    EXPECT_EQ(folder.names().size(), round == 0 ? 1U : 2U);
    EXPECT_EQ(::write(fd, "text", 4), 4);
    ::close(fd);
    EXPECT_EQ(name.rename_to(folder.path("a")), 0);
  }
  EXPECT_EQ(folder.names(), std::vector<std::string>{"a"});
  EXPECT_EQ(create_temporary_beside(folder.path("no/such/a")).fd, -1);
}

TEST(TemporaryFile, HasANameThatNobodyGuesses) {
  const TestFolder folder;
  const TemporaryFile one = create_temporary_beside(folder.path("a"));
  const TemporaryFile other = create_temporary_beside(folder.path("a"));
  EXPECT_NE(one.name.name(), other.name.name());
  ::close(one.fd);
  ::close(other.fd);
}

// The status of a child that was sent `number` after `prepare`.
template <typename Prepare>
int status_after(int number, Prepare prepare) {
  const pid_t child = ::fork();
  if (child == 0) {
    prepare();
    ::raise(number);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

TEST(TemporaryName, IsGoneAfterASignalAndOthersAreNot) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    const TestFolder folder;
    const int status = status_after(number, [&] {
      remove_temporary_files_on_signals();
      const TemporaryName gone(folder.write("a.tmp", "a"));
      TemporaryName moved(folder.write("b.tmp", "b"));
      const TemporaryName to = std::move(moved);
      TemporaryName kept(folder.write("c.tmp", "c"));
      kept.rename_to(folder.path("c"));
      folder.write("c.tmp", "another's");
      ::raise(number);
    });
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 128 + number);
    EXPECT_EQ(sorted_names(folder), (std::vector<std::string>{"c", "c.tmp"}));
  }
}

TEST(TemporaryName, OfManyAreAllGoneWithTheirObjects) {
  const TestFolder folder;
  for (int round = 0; round < 2; ++round) {
    std::vector<TemporaryName> names;
    for (int i = 0; i < 100; ++i) names.emplace_back(folder.write(std::to_string(i), "text"));
  }
  EXPECT_TRUE(folder.names().empty());
}

TEST(TemporaryName, AnIgnoredHangupStaysIgnored) {
  const int status = status_after(SIGHUP, [] {
    ::signal(SIGHUP, SIG_IGN);
    remove_temporary_files_on_signals();
  });
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace copus
