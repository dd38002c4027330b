#include "copus/base/spawn.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "copus/base/test_folder.h"

namespace copus {
namespace {

int exit_code_of(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// run() returns a script's exit code; the file "out" gets both its output streams.
class SpawnTest : public testing::Test {
 protected:
  Result<int> run(const std::string& script, int kept_open = -1) {
    const int out = ::open(folder_.path("out").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    EXPECT_GE(out, 0);
    const Result<pid_t> pid =
        spawn({"/bin/sh", {"sh", "-c", script}, {"GIVEN=value"}, out, out, kept_open});
    ::close(out);
    if (!pid) return pid.error();
    return exit_code_of(*pid);
  }
  const TestFolder folder_;
};

TEST_F(SpawnTest, HasTheVariablesAndTheOutputThatItIsGivenAndNoInput) {
  const Result<int> code = run("cat; echo $GIVEN; echo $HOME >&2; exit 7");
  ASSERT_TRUE(code) << code.error().message;
  EXPECT_EQ(*code, 7);
  EXPECT_EQ(folder_.read("out"), "value\n\n");
}

TEST_F(SpawnTest, HasTheDescriptorThatIsKeptOpen) {
  const int fd = ::open(folder_.write("in", "text\n").c_str(), O_RDONLY | O_CLOEXEC);
  const std::string script = "cat <&" + std::to_string(fd);
  EXPECT_EQ(run(script, fd).value(), 0);
  EXPECT_EQ(folder_.read("out"), "text\n");
  EXPECT_NE(run(script).value(), 0);
  ::close(fd);
}

TEST_F(SpawnTest, IgnoresWhatIsIgnoredButTheSignalsThatEndIt) {
  const auto hangup = ::signal(SIGHUP, SIG_IGN);
  const auto pipe = ::signal(SIGPIPE, SIG_IGN);
  const Result<int> code = run("kill -HUP $$; echo hung up; kill -PIPE $$; echo not reached");
  ::signal(SIGHUP, hangup);
  ::signal(SIGPIPE, pipe);
  EXPECT_EQ(code.value(), -1);
  EXPECT_EQ(folder_.read("out"), "hung up\n");
}

TEST_F(SpawnTest, LeadsAGroupOfItsOwnThatASignalReaches) {
  const Result<pid_t> pid = spawn({"/bin/sleep", {"sleep", "1000"}, own_variables()});
  ASSERT_TRUE(pid) << pid.error().message;
  EXPECT_EQ(::getpgid(*pid), *pid);
  EXPECT_EQ(::kill(-*pid, SIGKILL), 0);
  EXPECT_EQ(exit_code_of(*pid), -1);
}

TEST(Spawn, SaysWhatCannotBeStarted) {
  const Result<pid_t> pid = spawn({"/no/such/program", {"program"}, {}});
  ASSERT_FALSE(pid);
  EXPECT_EQ(pid.error().message, "/no/such/program: cannot be started: No such file or directory");
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
}

}  // namespace
}  // namespace copus
