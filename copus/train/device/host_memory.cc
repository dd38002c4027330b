#include "copus/train/device/host_memory.h"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>

namespace copus {

void keep_freed_memory() {
  ::mallopt(M_MMAP_MAX, 0);         // large blocks come from the heap too
  ::mallopt(M_TRIM_THRESHOLD, -1);  // the heap never shrinks
}

void reserve_memory(std::int64_t bytes, int ranks) {
  const std::int64_t page = ::sysconf(_SC_PAGE_SIZE);
  if (::sysconf(_SC_AVPHYS_PAGES) / ranks < 2 * bytes / page) return;
  void* block = std::malloc(static_cast<std::size_t>(bytes));
  if (block == nullptr) return;
  // Asks for large pages before the block is touched. A system without large pages refuses, and the
  // block then has small ones.
  void* pages = block;
  auto space = static_cast<std::size_t>(bytes);
  if (std::align(static_cast<std::size_t>(page), 1, pages, space) != nullptr) {
    ::madvise(pages, space, MADV_HUGEPAGE);
  }
  volatile char* memory = static_cast<char*>(block);
  for (std::int64_t i = 0; i < bytes; i += page) memory[i] = 1;
  std::free(block);
}

}  // namespace copus
