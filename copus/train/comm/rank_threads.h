// Runs a test of several ranks in one process: one thread per rank, over Gloo on loopback.
#pragma once

#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "copus/train/comm/mesh.h"

namespace copus {

// Runs f(rank, groups) on `world` threads and rethrows the first error. A thread can be a rank
// because libtorch runs a backward pass on CPUs in the thread that calls it.
inline void run_ranks(int world, const std::function<void(int, GroupCache&)>& f,
                      std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  const auto store = local_store();
  store->setTimeout(timeout);  // a served store has this limit too
  std::exception_ptr first;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        at::set_num_threads(1);  // OpenMP counts threads per calling thread
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
