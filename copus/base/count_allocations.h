// Counts heap allocations by replacing operator new. Include it in one source file of a binary: the
// replacement is for the whole program.
//
// Every form that the programs use is replaced. AddressSanitizer has its own nothrow form, which
// std::stable_sort calls: memory of the one must not be freed by the other. Nothing is inlined,
// because GCC would warn of a new that meets free().
#pragma once

#include <cstdlib>
#include <new>

namespace {
std::size_t allocations = 0;

[[gnu::noinline]] void* counted(std::size_t size) noexcept {
  ++allocations;
  return std::malloc(size == 0 ? 1 : size);
}
void* counted_or_throw(std::size_t size) {
  if (void* memory = counted(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void release(void* memory) noexcept { std::free(memory); }
}  // namespace

[[gnu::noinline]] void* operator new(std::size_t size) { return counted_or_throw(size); }
[[gnu::noinline]] void* operator new[](std::size_t size) { return counted_or_throw(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return counted(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return counted(size); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { release(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { release(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { release(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { release(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { release(memory); }
