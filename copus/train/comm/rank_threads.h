// For tests: a thread per rank over Gloo on loopback, in one process.
#pragma once

#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "copus/train/comm/mesh.h"

namespace copus {

// Runs f(rank, groups) on `world` threads; rethrows the first error. CPU backward passes run on the
// calling thread, so a thread can be a rank.
inline void run_ranks(int world, const std::function<void(int, GroupCache&)>& f,
                      std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  const auto store = local_store();
  store->setTimeout(timeout);  // as a served one has it
  std::exception_ptr first;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        at::set_num_threads(1);  // OpenMP's count is each thread's own
        Rendezvous rendezvous;
        rendezvous.store = store;
        rendezvous.rank = rank;
        rendezvous.world_size = world;
        rendezvous.timeout = timeout;
        GroupCache groups(rendezvous);
        f(rank, groups);
      } catch (...) {
        const std::lock_guard<std::mutex> lock(mutex);
        if (!first) first = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace copus
