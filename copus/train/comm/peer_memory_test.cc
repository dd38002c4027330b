// Reading other ranks' memory. The ranks of these tests are threads of one process, which may read
// itself. tests/train/adapt_test.py and reshard_bench use real processes.
#include "copus/train/comm/peer_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <numeric>
#include <random>

#include "copus/train/comm/rank_threads.h"

namespace copus {
namespace {

constexpr int kRanks = 3;

const Comm& world_of(GroupCache& groups) {
  Result<const Comm*> world = groups.group("world", {0, 1, 2});
  EXPECT_TRUE(world.has_value());
  return **world;
}

std::int64_t address_of(const void* memory) { return reinterpret_cast<std::intptr_t>(memory); }

iovec segment(std::int64_t address, std::size_t bytes) {
  return {reinterpret_cast<void*>(address), bytes};
}

TEST(PeerMemory, AllKnowWhoReadsWhom) {
  run_ranks(kRanks, [&](int self, GroupCache& groups) {
    // Rank 0 may read no other rank, rank 1 only rank 2, and rank 2 all others.
    const auto allowed = [](int reader, int rank) {
      return reader == 2 || (reader == 1 && rank == 2);
    };
    const PeerMemory peers(world_of(groups), at::kCPU, {self, 10 * self},
                           [&](int rank) { return allowed(self, rank); });
    for (int reader = 0; reader < kRanks; ++reader) {
      for (int rank = 0; rank < kRanks; ++rank) {
        EXPECT_EQ(peers.reads(reader, rank), reader != rank && allowed(reader, rank));
      }
    }
    for (int rank = 0; rank < kRanks; ++rank) {
      if (!peers.reads(self, rank)) continue;
      ASSERT_EQ(peers.published(rank).size(), 2);
      EXPECT_EQ(peers.published(rank)[0], rank);
      EXPECT_EQ(peers.published(rank)[1], 10 * rank);
    }
  });
}

// Cuts [0, count) into random pieces of at most `longest`, `gap` apart.
std::vector<iovec> scattered(std::mt19937& random, std::int64_t base, std::size_t count,
                             std::size_t longest, std::size_t gap) {
  std::vector<iovec> all;
  for (std::size_t at = 0; at < count;) {
    const std::size_t size =
        std::min(count - at, std::uniform_int_distribution<std::size_t>(1, longest)(random));
    all.push_back(segment(base + static_cast<std::int64_t>(at + all.size() * gap), size));
    at += size;
  }
  return all;
}

std::vector<char> gathered(const std::vector<iovec>& segments) {
  std::vector<char> bytes;
  for (const iovec& each : segments) {
    const auto* first = static_cast<const char*>(each.iov_base);
    bytes.insert(bytes.end(), first, first + each.iov_len);
  }
  return bytes;
}

TEST(PeerMemory, ReadsScatteredBytesIntoScatteredPlaces) {
  run_ranks(kRanks, [&](int self, GroupCache& groups) {
    constexpr std::size_t kBytes = 100'000;
    std::vector<char> memory(2 * kBytes * 3);
    std::iota(memory.begin(), memory.end(), static_cast<char>(self * 17));
    const PeerMemory peers(world_of(groups), at::kCPU, {address_of(memory.data())}, nullptr);
    const int next = (self + 1) % kRanks;
    std::mt19937 random(static_cast<unsigned>(self));
    // Some pairs have more pieces on one side, or on both, than one system call takes.
    for (const auto& [theirs, ours] : {std::pair{20, 20}, {50'000, 20}, {20, 50'000}, {9, 60}}) {
      std::vector<char> target(6 * kBytes);
      const auto from =
          scattered(random, peers.published(next)[0], kBytes, static_cast<std::size_t>(theirs), 3);
      const auto to =
          scattered(random, address_of(target.data()), kBytes, static_cast<std::size_t>(ours), 2);
      peers.read(next, from, to);
      EXPECT_EQ(gathered(from), gathered(to));
    }
    world_of(groups).barrier();  // a rank frees its memory only after all have read it
  });
}

TEST(PeerMemory, WhatCannotBeReadIsAnError) {
  run_ranks(kRanks, [&](int self, GroupCache& groups) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGE_SIZE));
    void* pages =
        ::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(pages, MAP_FAILED);
    ASSERT_EQ(::mprotect(static_cast<char*>(pages) + page, page, PROT_NONE), 0);
    const PeerMemory peers(world_of(groups), at::kCPU, {address_of(pages)}, nullptr);
    const int next = (self + 1) % kRanks;
    const std::int64_t there = peers.published(next)[0];
    std::vector<char> target(2 * page);
    const auto trouble = [&](std::int64_t address, std::size_t bytes) -> std::string {
      const iovec from = segment(address, bytes), to{target.data(), bytes};
      try {
        peers.read(next, {&from, 1}, {&to, 1});
        return "";
      } catch (const std::runtime_error& error) {
        return error.what();
      }
    };
    const std::string who = fmt::format("cannot read rank {}'s memory: ", next);
    EXPECT_EQ(trouble(there, page), "");
    EXPECT_EQ(trouble(there + static_cast<std::int64_t>(page), page), who + "Bad address");
    EXPECT_EQ(trouble(there, 2 * page),
              who + fmt::format("{} of {} bytes could be read", page, 2 * page));
    world_of(groups).barrier();
    ::munmap(pages, 2 * page);
  });
}

}  // namespace
}  // namespace copus
