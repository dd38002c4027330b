// Tests of the supervisor with ranks that fail and runs that a signal ends.
#include <sys/wait.h>

#include "copus/train/launch/supervisor.h"
#include "copus/train/launch/supervisor_fixture.h"

namespace copus {
namespace {

class SupervisorFailure : public SupervisorTest {};

TEST_F(SupervisorFailure, OneRanksExitCodeIsTheRuns) {
  const SupervisorOutcome outcome = run(script(3, "[ $RANK = 1 ] && exit 2; sleep 60"));
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.failed_rank, 1);
  EXPECT_EQ(outcome.signal, 0);
  EXPECT_FALSE(outcome.interrupted);
  EXPECT_EQ(outcome.message, "rank 1 ended with exit code 2");
}

TEST_F(SupervisorFailure, ARanksLastWordsAreItsLastLineOnStandardError) {
  const SupervisorOutcome outcome = run(script(
      2,
      "[ $RANK = 1 ] || exec sleep 60; echo first >&2; echo 'no such file: x' >&2; echo >&2; "
      "echo output; exit 1"));
  EXPECT_EQ(outcome.message, "rank 1 ended with exit code 1; its last words: no such file: x");
  EXPECT_NE(err_.find("rank 1: no such file: x\n"), std::string::npos);
}

TEST_F(SupervisorFailure, AKilledRankIsNamedWithItsSignal) {
  const SupervisorOutcome outcome =
      run(script(4, "[ $RANK = 2 ] || exec sleep 60; echo step 7 >&2; kill -KILL $$"));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.failed_rank, 2);
  EXPECT_EQ(outcome.signal, SIGKILL);
  EXPECT_EQ(outcome.killed, std::vector<int>({2}));
  EXPECT_EQ(outcome.message, "rank 2 was killed by signal 9 (Killed)");
}

TEST_F(SupervisorFailure, ACrashKeepsItsLastWords) {
  const SupervisorOutcome outcome =
      run(script(1, "ulimit -c 0; echo 'CHECK failed' >&2; kill -ABRT $$"));
  EXPECT_EQ(outcome.message,
            "rank 0 was killed by signal 6 (Aborted); its last words: CHECK failed");
}

TEST_F(SupervisorFailure, AKilledRankExplainsTheOthersThatFailBesideIt) {
  // Rank 0 fails first. Then rank 1 dies of a signal that the supervisor did not send.
  const SupervisorOutcome outcome =
      run(script(2,
                 "if [ $RANK = 0 ]; then while [ ! -e $DIR/ready ]; do sleep 0.01; done; exit 3; "
                 "fi; trap 'kill -KILL $$' TERM; echo > $DIR/ready; sleep 60 & wait"));
  EXPECT_EQ(outcome.failed_rank, 1);
  EXPECT_EQ(outcome.signal, SIGKILL);
  EXPECT_EQ(outcome.exit_code, 1);
}

TEST_F(SupervisorFailure, TheRanksThatWeEndAreNotToBlame) {
  const SupervisorOutcome outcome =
      run(script(8, "[ $RANK = 5 ] && exit 3; trap 'exit 4' TERM; sleep 60 & wait"));
  EXPECT_EQ(outcome.failed_rank, 5);
  EXPECT_EQ(outcome.exit_code, 3);
}

TEST_F(SupervisorFailure, ARankThatIgnoresThePoliteSignalIsKilled) {
  const SupervisorOutcome outcome = run(
      script(2,
             "if [ $RANK = 0 ]; then while [ ! -e $DIR/ready ]; do sleep 0.01; done; exit 2; fi; "
             "trap '' TERM; echo $$ > $DIR/pid; echo > $DIR/ready; sleep 60; sleep 60",
             Seconds(0.2)));
  EXPECT_EQ(outcome.failed_rank, 0);
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_TRUE(gone(pid_in("pid")));
}

TEST_F(SupervisorFailure, ARankMayEndInItsOwnTimeWithinTheGrace) {
  run(script(2,
             "if [ $RANK = 0 ]; then while [ ! -e $DIR/ready ]; do sleep 0.01; done; exit 1; fi; "
             "trap 'sleep 0.2; echo saved >&2; exit 0' TERM; echo > $DIR/ready; sleep 60 & wait"));
  EXPECT_NE(err_.find("rank 1: saved\n"), std::string::npos) << err_;
}

TEST_F(SupervisorFailure, AGrandchildLeftBehindIsEnded) {
  const SupervisorOutcome outcome = run(script(2, "sleep 60 & echo $! > $DIR/child$RANK; exit 0"));
  EXPECT_EQ(outcome.exit_code, 0);
  for (const char* name : {"child0", "child1"}) {
    const pid_t child = pid_in(name);
    ASSERT_GT(child, 0);
    EXPECT_TRUE(eventually([&] { return gone(child); }));
  }
}

TEST_F(SupervisorFailure, SigintEndsTheRun) {
  const SupervisorOutcome outcome = run(script(3, "[ $RANK = 0 ] && kill -INT $PPID; sleep 60"));
  EXPECT_TRUE(outcome.interrupted);
  EXPECT_EQ(outcome.exit_code, 130);
  EXPECT_EQ(outcome.failed_rank, -1);
  EXPECT_EQ(outcome.message, "stopped by SIGINT");
}

TEST_F(SupervisorFailure, SigtermEndsTheRun) {
  const SupervisorOutcome outcome = run(script(3, "[ $RANK = 0 ] && kill -TERM $PPID; sleep 60"));
  EXPECT_TRUE(outcome.interrupted);
  EXPECT_EQ(outcome.exit_code, 143);
  EXPECT_EQ(outcome.message, "stopped by SIGTERM");
}

TEST_F(SupervisorFailure, ASignalThatRanksAnswerByASaveIsNoFailure) {
  for (const char* name : {"TERM", "USR1", "HUP"}) {
    const SupervisorOutcome outcome = run(script(
        2,
        fmt::format("trap 'echo saved >&2; exit 0' TERM; echo > $DIR/{0}$RANK; if [ $RANK = 0 ]; "
                    "then while [ ! -e $DIR/{0}1 ]; do sleep 0.01; done; kill -{0} $PPID; fi; "
                    "sleep 60 & wait",
                    name)));
    EXPECT_TRUE(outcome.interrupted) << name;
    EXPECT_EQ(outcome.exit_code, 0) << name << outcome.message;
    EXPECT_EQ(outcome.message, "");
    EXPECT_EQ(err_lines().size(), 2U);
  }
}

TEST_F(SupervisorFailure, AfterSigintTheExitCodeSaysSoThoughAllWasSaved) {
  const SupervisorOutcome outcome =
      run(script(2,
                 "trap 'exit 0' TERM; echo > $DIR/up$RANK; if [ $RANK = 0 ]; then while [ ! -e "
                 "$DIR/up1 ]; do sleep 0.01; done; kill -INT $PPID; fi; sleep 60 & wait"));
  EXPECT_EQ(outcome.exit_code, 130);
}

TEST_F(SupervisorFailure, ASaveMayTakeLongerThanTheEndOfAFailedRun) {
  SupervisorOptions options =
      script(1, "trap 'sleep 0.5; echo saved >&2; exit 0' TERM; kill -TERM $PPID; sleep 60 & wait",
             Seconds(0));
  options.save_grace = kLong;
  EXPECT_EQ(run(options).exit_code, 0);
  EXPECT_NE(err_.find("saved"), std::string::npos);
  options.command.back() = "trap '' TERM; kill -TERM $PPID; sleep 60";
  options.save_grace = Seconds(0.3);
  const SupervisorOutcome outcome = run(options);
  EXPECT_EQ(outcome.exit_code, 143);
  EXPECT_EQ(outcome.message, "stopped by SIGTERM; the ranks did not end in time and were killed");
}

TEST_F(SupervisorFailure, ARunThatStandsStillIsEnded) {
  SupervisorOptions options = script(2, "trap '' TERM; exec sleep 60", Seconds(0.1));
  std::vector<int> asked;
  options.stalled = [&](const std::vector<int>& alive) {
    asked = alive;
    return std::string("rank 1 has been silent");
  };
  const SupervisorOutcome outcome = run(options);
  EXPECT_EQ(asked, std::vector<int>({0, 1}));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.message, "rank 1 has been silent");
}

TEST_F(SupervisorFailure, AVerdictIsNoFailureOfARank) {
  const SupervisorOutcome outcome = run(script(2, "exit $((RANK == 0 ? 113 : 0))"));
  EXPECT_TRUE(outcome.verdict);
  EXPECT_EQ(outcome.exit_code, 1);
}

TEST_F(SupervisorFailure, ASecondSigintKillsAtOnce) {
  const SupervisorOutcome outcome =
      run(script(2, "trap '' TERM; while :; do kill -INT $PPID; sleep 0.1; done"));
  EXPECT_TRUE(outcome.interrupted);
  EXPECT_EQ(outcome.exit_code, 130);
}

TEST_F(SupervisorFailure, NoRankOutlivesAKilledSupervisor) {
  const pid_t supervisor = ::fork();
  ASSERT_GE(supervisor, 0);
  if (supervisor == 0) {
    const auto ended = supervise(script(3, "trap '' TERM; echo $$ > $DIR/pid$RANK; exec sleep 60"));
    ::_exit(ended ? 0 : 1);
  }
  for (const char* name : {"pid0", "pid1", "pid2"}) {
    EXPECT_TRUE(eventually([&] { return pid_in(name) > 0; })) << name;
  }
  ::kill(supervisor, SIGKILL);
  ASSERT_EQ(::waitpid(supervisor, nullptr, 0), supervisor);
  for (const char* name : {"pid0", "pid1", "pid2"}) {
    EXPECT_TRUE(eventually([&] { return gone(pid_in(name)); })) << name;
  }
}

TEST_F(SupervisorFailure, RanksStartedBeforeOneThatCannotBeAreEnded) {
  // The program removes its own file once it runs, so some later rank does not find it.
  const std::filesystem::path program = folder_ / "once";
  std::ofstream(program) << "#!/bin/sh\nrm -f \"$0\"\necho $$ >> $DIR/pids\nexec sleep 60\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  const Result<SupervisorOutcome> outcome = supervise({2000, {program.string()}, 29555, kLong});
  ASSERT_FALSE(outcome);
  EXPECT_NE(outcome.error().message.find("cannot be started"), std::string::npos);
  std::ifstream pids(folder_ / "pids");
  for (pid_t pid = 0; pids >> pid;) EXPECT_TRUE(gone(pid)) << pid;
}

}  // namespace
}  // namespace copus
