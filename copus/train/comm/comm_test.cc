#include "copus/train/comm/comm.h"

#include <glob.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <set>

#include "copus/base/seconds_since.h"
#include "copus/train/comm/agree.h"
#include "copus/train/comm/rank_threads.h"

namespace copus {
namespace {

const std::vector<int> kAll{0, 1, 2, 3};

const Comm& world(GroupCache& groups) {
  const Result<const Comm*> comm = groups.group("world", kAll);
  if (!comm) throw std::runtime_error(comm.error().message);
  return **comm;
}

// Gloo's backend has different algorithms for small and for large messages.
class Sizes : public ::testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(Elements, Sizes, ::testing::Values(1, 1000, 200'000));

TEST_P(Sizes, AllReduceSumsAndGivesTheSameBitsToAll) {
  std::mutex mutex;
  std::vector<Tensor> results;
  run_ranks(4, [&](int rank, GroupCache& groups) {
    Tensor x = at::arange(GetParam(), at::kFloat).mul_(0.1).add_(rank * 0.3);
    world(groups).all_reduce(x);
    const std::lock_guard<std::mutex> lock(mutex);
    results.push_back(x);
  });
  const Tensor expected = at::arange(GetParam(), at::kFloat).mul_(0.4).add_(1.8);
  EXPECT_TRUE(at::allclose(results[0], expected, 1e-5, 1e-5));
  for (const Tensor& x : results) EXPECT_TRUE(at::equal(x, results[0]));
}

TEST_P(Sizes, ReduceScatterThenAllGatherIsAllReduce) {
  run_ranks(4, [&](int rank, GroupCache& groups) {
    const Comm& comm = world(groups);
    const Tensor x = at::arange(4 * GetParam(), at::kFloat).add_(rank);
    Tensor mine = at::empty({GetParam()});
    comm.reduce_scatter(mine, x);
    Tensor all = at::empty({4 * GetParam()});
    comm.all_gather(all, mine);
    EXPECT_TRUE(at::allclose(all, at::arange(4 * GetParam(), at::kFloat).mul_(4).add_(6)));
  });
}

TEST_P(Sizes, MessagesArriveInOrder) {
  run_ranks(2, [&](int rank, GroupCache& groups) {
    const Result<const Comm*> pair = groups.group("pair", {0, 1});
    ASSERT_TRUE(pair.has_value());
    std::vector<Pending> pending;
    std::vector<Tensor> tensors;
    for (int i = 0; i < 5; ++i) {
      tensors.push_back(at::full({GetParam()}, rank == 0 ? i : -1, at::kFloat));
      pending.push_back(rank == 0 ? (*pair)->start_send(tensors.back(), 1)
                                  : (*pair)->start_receive(tensors.back(), 0));
    }
    for (Pending& p : pending) p.wait();
    for (int i = 0; i < 5; ++i) {
      EXPECT_TRUE(
          at::equal(tensors[static_cast<std::size_t>(i)], at::full({GetParam()}, i, at::kFloat)));
    }
  });
}

// If ranks share cores, Gloo's thread would otherwise take the core of the writer it waits for.
TEST(Comm, GloosThreadWakesWithoutTakingACore) {
  const sched_param none{};
  if (::sched_setscheduler(0, SCHED_BATCH, &none) != 0) GTEST_SKIP() << "refused here";
  ASSERT_EQ(::sched_setscheduler(0, SCHED_OTHER, &none), 0);
  const auto policies = [] {
    std::multiset<int> found;
    glob_t tasks{};
    ::glob("/proc/self/task/*", 0, nullptr, &tasks);
    for (std::size_t i = 0; i < tasks.gl_pathc; ++i) {
      found.insert(::sched_getscheduler(std::stoi(std::strrchr(tasks.gl_pathv[i], '/') + 1)));
    }
    ::globfree(&tasks);
    return found;
  };
  run_ranks(4, [&](int, GroupCache& groups) {
    world(groups).barrier();
    EXPECT_EQ(::sched_getscheduler(0), SCHED_OTHER);
    EXPECT_EQ(policies().count(SCHED_BATCH), 1);
    world(groups).barrier();
  });
}

TEST(Comm, OperationsMayBeWaitedForInAnyOrder) {
  run_ranks(4, [&](int rank, GroupCache& groups) {
    std::vector<Tensor> tensors;
    std::vector<Pending> pending;
    for (int i = 0; i < 6; ++i) {
      tensors.push_back(at::full({100 * (i + 1)}, rank + i, at::kFloat));
      pending.push_back(world(groups).start_all_reduce(tensors.back()));
    }
    for (const std::size_t i : {3, 0, 5, 1, 4, 2}) pending[i].wait();
    for (int i = 0; i < 6; ++i) {
      EXPECT_TRUE(at::equal(tensors[static_cast<std::size_t>(i)],
                            at::full({100 * (i + 1)}, 6 + 4 * i, at::kFloat)));
    }
  });
}

TEST(Comm, SumsBf16InFp32) {
  run_ranks(4, [&](int rank, GroupCache& groups) {
    // 256 + 1 is 256 in BF16, so adding one by one would lose every 1.
    Tensor x = at::full({8}, rank == 0 ? 256.0 : 1.0, at::kBFloat16);
    world(groups).all_reduce(x);
    EXPECT_EQ(x[0].item<float>(), at::scalar_tensor(259.0).to(at::kBFloat16).item<float>());
  });
}

TEST(Comm, GathersAndBroadcastsBf16) {
  for (const std::int64_t elements : {10, 200'000}) {
    run_ranks(4, [&](int rank, GroupCache& groups) {
      const Comm& comm = world(groups);
      Tensor all = at::empty({4 * elements}, at::kBFloat16);
      comm.all_gather(all, at::full({elements}, rank + 0.5, at::kBFloat16));
      for (int from = 0; from < 4; ++from) {
        EXPECT_EQ(all[from * elements].item<float>(), static_cast<float>(from) + 0.5F);
      }
      Tensor x = at::full({elements}, rank, at::kBFloat16);
      comm.broadcast(x, 3);
      EXPECT_EQ(x[elements - 1].item<float>(), 3);
      Tensor part = at::empty({elements}, at::kBFloat16);
      comm.reduce_scatter(part, at::ones({4 * elements}, at::kBFloat16));
      EXPECT_EQ(part[0].item<float>(), 4);
    });
  }
}

TEST(Comm, TakesTheLargest) {
  run_ranks(4, [&](int rank, GroupCache& groups) {
    Tensor x = at::full({3}, rank);
    x = x.to(at::kFloat);
    world(groups).all_reduce_max(x);
    EXPECT_EQ(x[2].item<float>(), 3);
  });
}

TEST(Comm, AGroupOfOneChangesNothing) {
  run_ranks(1, [&](int, GroupCache& groups) {
    const Result<const Comm*> one = groups.group("one", {0});
    ASSERT_TRUE(one.has_value());
    Tensor x = at::ones({4}), y = at::empty({4});
    (*one)->all_reduce(x);
    (*one)->reduce_scatter(y, x);
    EXPECT_TRUE(at::equal(y, at::ones({4})));
    (*one)->barrier();
  });
}

TEST(Comm, TheSameGroupIsMadeOnce) {
  run_ranks(2, [&](int, GroupCache& groups) {
    const Result<const Comm*> a = groups.group("dp", {0, 1});
    const Result<const Comm*> b = groups.group("dp", {0, 1});
    ASSERT_TRUE(a.has_value() && b.has_value());
    EXPECT_EQ(*a, *b);
  });
}

// Runs `call` on all ranks but rank 2, which joins the group and then never starts the operation.
void expect_missing(std::int64_t elements, const char* operation,
                    const std::function<void(const Comm&, Tensor)>& call) {
  std::mutex mutex;
  std::vector<std::string> errors;
  const auto begin = std::chrono::steady_clock::now();
  run_ranks(
      4,
      [&](int rank, GroupCache& groups) {
        const Comm& comm = world(groups);
        if (rank == 2) {
          std::this_thread::sleep_for(std::chrono::seconds(6));
          return;
        }
        try {
          call(comm, at::ones({elements}));
        } catch (const CommError& error) {
          const std::lock_guard<std::mutex> lock(mutex);
          errors.push_back(error.what());
        }
      },
      std::chrono::seconds(2));
  EXPECT_LT(seconds_since(begin), Seconds(40))
      << "the ranks must not wait for a hung peer for long";
  ASSERT_EQ(errors.size(), 3U);
  for (const std::string& error : errors) {
    EXPECT_NE(error.find(operation), std::string::npos) << error;
    EXPECT_NE(error.find("group world (ranks 0,1,2,3)"), std::string::npos) << error;
    EXPECT_NE(error.find("missing: rank 2;"), std::string::npos) << error;
  }
}

TEST(Comm, ASilentPeerIsNamedInASmallAllReduce) {
  expect_missing(10, "all-reduce number 1", [](const Comm& c, Tensor x) { c.all_reduce(x); });
}

TEST(Comm, ASilentPeerIsNamedInALargeAllReduce) {
  expect_missing(300'000, "all-reduce number 1", [](const Comm& c, Tensor x) { c.all_reduce(x); });
}

TEST(Comm, ASilentPeerIsNamedInAnAllGather) {
  expect_missing(300'000, "all-gather number 1",
                 [](const Comm& c, Tensor x) { c.all_gather(at::empty({4 * x.numel()}), x); });
}

TEST(Comm, AMeetingWaitsLongerThanAnOperation) {
  run_ranks(
      3,
      [&](int rank, GroupCache& groups) {
        const Result<const Comm*> all = groups.group("world", {0, 1, 2});
        ASSERT_TRUE(all.has_value());
        for (int i = 0; i < 3; ++i) {
          if (rank == 2 && i == 1) std::this_thread::sleep_for(std::chrono::seconds(3));
          (*all)->meet();
          (*all)->barrier();
        }
      },
      std::chrono::seconds(2));
}

TEST(Comm, WhoDoesNotComeToAMeetingIsNamed) {
  std::mutex mutex;
  std::vector<std::string> errors;
  run_ranks(
      3,
      [&](int rank, GroupCache& groups) {
        const Result<const Comm*> all = groups.group("world", {0, 1, 2});
        ASSERT_TRUE(all.has_value());
        (*all)->meet();
        if (rank == 1) return;
        try {
          (*all)->meet();
        } catch (const CommError& error) {
          const std::lock_guard<std::mutex> lock(mutex);
          errors.push_back(error.what());
        }
      },
      std::chrono::seconds(1));
  ASSERT_EQ(errors.size(), 2U);
  for (const std::string& error : errors) {
    EXPECT_EQ(error,
              "meeting number 2 in group world (ranks 0,1,2) failed; missing: rank 1; timed out");
  }
}

TEST(Comm, APortInUseIsAnError) {
  const Result<ServedStore> first = serve_store(0, 1, std::chrono::seconds(5));
  ASSERT_TRUE(first.has_value());
  const Result<ServedStore> second = serve_store(first->port, 1, std::chrono::seconds(5));
  ASSERT_FALSE(second.has_value());
  EXPECT_NE(second.error().message.find("want a free port"), std::string::npos);
}

TEST(Agree, TheTroubleOfTheLowestRankIsHeardOnAll) {
  run_ranks(4, [](int rank, GroupCache& groups) {
    const std::string mine = rank == 0 ? "" : fmt::format("trouble {}", 9 - rank);
    EXPECT_EQ(first_trouble(world(groups), {}, mine), "rank 1: trouble 8");
    EXPECT_EQ(first_trouble(world(groups), {}, ""), "");
    EXPECT_EQ(first_trouble(world(groups), {}, rank == 3 ? std::string(999, 'x') : "").size(),
              255U);
  });
}

TEST(Agree, AnyRanksTextReachesAll) {
  run_ranks(4, [](int rank, GroupCache& groups) {
    const std::string mine = std::string(1000, static_cast<char>('a' + rank));
    EXPECT_EQ(from_rank(2, world(groups), {}, mine), std::string(1000, 'c'));
    EXPECT_EQ(from_rank_0(world(groups), {}, rank == 0 ? "" : "unheard"), "");
  });
}

TEST(Agree, TheOthersGetRank0sErrorAndWaitForItsWork) {
  std::atomic<bool> done = false;
  run_ranks(4, [&](int rank, GroupCache& groups) {
    const Rendezvous& where = groups.rendezvous();
    EXPECT_TRUE(on_rank_0(where, "well", [&]() -> Result<void> {
      EXPECT_EQ(rank, 0);
      done = true;
      return {};
    }));
    EXPECT_TRUE(done);
    const Result<void> failed =
        on_rank_0(where, "badly", [] { return Result<void>(field_error("disk", "got full")); });
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().message, rank == 0 ? "disk: got full" : "rank 0: disk: got full");
    EXPECT_EQ(failed.error().field, "disk");
  });
}

}  // namespace
}  // namespace copus
