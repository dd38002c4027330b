#include "copus/train/launch/supervisor.h"

#include <algorithm>
#include <map>

#include "copus/train/launch/line_buffer.h"
#include "copus/train/launch/rank_process.h"
#include "copus/train/launch/supervisor_fixture.h"

namespace copus {
namespace {

using Lines = std::vector<std::string>;

TEST_F(SupervisorTest, AllRanksEndWell) {
  const SupervisorOutcome outcome = run(script(4, "exit 0"));
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.failed_rank, -1);
  EXPECT_EQ(outcome.signal, 0);
  EXPECT_FALSE(outcome.interrupted);
  EXPECT_EQ(outcome.message, "");
}

TEST_F(SupervisorTest, RanksLearnWhoTheyAre) {
  run(script(2,
             "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR:$MASTER_PORT "
             "$TORCHELASTIC_USE_AGENT_STORE $COPUS_LAUNCHED >&2"));
  Lines lines = err_lines();
  std::sort(lines.begin(), lines.end());
  EXPECT_EQ(lines, Lines({"rank 0: 0/2 0/2 127.0.0.1:29555 True 1",
                          "rank 1: 1/2 1/2 127.0.0.1:29555 True 1"}));
}

TEST_F(SupervisorTest, RankZeroSpeaksForTheRun) {
  run(script(2, "echo out of $RANK; echo err of $RANK >&2"));
  EXPECT_EQ(out_, "out of 0\n");
  Lines lines = err_lines();
  std::sort(lines.begin(), lines.end());
  EXPECT_EQ(lines, Lines({"rank 0: err of 0", "rank 1: err of 1", "rank 1: out of 1"}));
}

TEST_F(SupervisorTest, LinesOfManyRanksStayWhole) {
  constexpr int kRanks = 8;
  constexpr int kLines = 200;
  run(script(kRanks,
             "i=0; while [ $i -lt 200 ]; do printf 'line %d ' $i >&2; printf 'of %d\\n' $RANK >&2; "
             "i=$((i+1)); done"));
  std::map<int, int> next;  // line, by rank
  for (const std::string& line : err_lines()) {
    int rank = -1;
    ASSERT_EQ(std::sscanf(line.c_str(), "rank %d:", &rank), 1) << line;
    ASSERT_EQ(line, fmt::format("rank {0}: line {1} of {0}", rank, next[rank]));
    ++next[rank];
  }
  for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(next[rank], kLines) << rank;
}

TEST_F(SupervisorTest, AnUnfinishedLastLineIsALine) {
  run(script(1, "printf 'no newline' >&2"));
  EXPECT_EQ(err_, "rank 0: no newline\n");
}

TEST_F(SupervisorTest, AnOverlongLineComesInPieces) {
  run(script(1, "head -c 100000 /dev/zero | tr '\\0' x >&2; echo >&2"));
  const Lines lines = err_lines();
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0], "rank 0: " + std::string(LineBuffer::kMaxLine, 'x'));
  EXPECT_EQ(lines[1], "rank 0: " + std::string(100000 - LineBuffer::kMaxLine, 'x'));
}

TEST_F(SupervisorTest, RanksHaveNoInput) {
  EXPECT_EQ(run(script(2, "if read line; then exit 1; fi")).exit_code, 0);
}

TEST_F(SupervisorTest, FindsTheProgramAsAShellDoes) {
  EXPECT_EQ(run({2, {"sh", "-c", "exit 0"}, 29555, kLong}).exit_code, 0);
}

TEST_F(SupervisorTest, WhatCannotBeStartedIsAnError) {
  const auto failure = [](const std::string& program) {
    const Result<SupervisorOutcome> outcome = supervise({2, {program}, 29555, kLong});
    return outcome ? "started" : outcome.error().message;
  };
  EXPECT_EQ(failure("/no/such/program"),
            "/no/such/program: cannot be started: No such file or directory");
  EXPECT_EQ(failure(folder_.string()), folder_.string() + ": cannot be started: Permission denied");
  EXPECT_EQ(failure("no-such-program"), "no-such-program: no such program on PATH");
}

TEST_F(SupervisorTest, RefusesOptionsThatMakeNoSense) {
  EXPECT_FALSE(supervise({0, {"/bin/sh"}, 29555, Seconds(1)}));
  EXPECT_FALSE(supervise({1, {}, 29555, Seconds(1)}));
  EXPECT_FALSE(supervise({1, {"/bin/sh"}, 29555, Seconds(-1)}));
}

TEST_F(SupervisorTest, SignalsAreGivenBack) {
  struct sigaction before = {};
  struct sigaction after = {};
  ::sigaction(SIGINT, nullptr, &before);
  run(script(1, "exit 0"));
  ::sigaction(SIGINT, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
}

TEST(RankVariables, ReplaceWhatWasInherited) {
  EXPECT_EQ(rank_variables({"A=1", "RANK=9", "RANKS=9", "MASTER_PORT=1"}, 1, 4, 0, "store", 10),
            Lines({"A=1", "RANKS=9", "RANK=1", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=4",
                   "MASTER_ADDR=127.0.0.1", "COPUS_NODE_STORE=store",
                   "TORCHELASTIC_USE_AGENT_STORE=True", "COPUS_LAUNCHED=1", "OMP_NUM_THREADS=2"}));
}

TEST(RankVariables, TheUsersThreadsAreKept) {
  const auto threads = [](const Lines& inherited, int cores) {
    for (const std::string& each : rank_variables(inherited, 0, 8, 29555, "", cores)) {
      if (each.starts_with("OMP_NUM_THREADS=")) return each;
    }
    return std::string();
  };
  EXPECT_EQ(threads({"OMP_NUM_THREADS=7"}, 64), "OMP_NUM_THREADS=7");
  EXPECT_EQ(threads({}, 64), "OMP_NUM_THREADS=8");
  EXPECT_EQ(threads({}, 2), "OMP_NUM_THREADS=1");
}

}  // namespace
}  // namespace copus
