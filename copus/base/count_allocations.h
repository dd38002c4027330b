// Counts heap allocations by replacing operator new. Include it in only one source file of a
// program, because the replacement holds for the whole program.
//
// The aligned forms (std::align_val_t) are not replaced, so their allocations are not counted. The
// nothrow form is replaced, because std::stable_sort calls it. AddressSanitizer has a nothrow form
// of its own, and our operator delete must not free AddressSanitizer's memory. The functions are
// not inlined, because GCC would warn that free() gets memory from operator new.
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
