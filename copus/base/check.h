// COPUS_CHECK(condition) aborts the program if the condition is false. Only a bug may cause that:
// bad input is an error in a Result<T>.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace copus {

[[noreturn]] inline void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "copus: internal error: CHECK(%s) failed at %s:%d\n", condition, file, line);
  std::abort();
}

}  // namespace copus

#define COPUS_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::copus::check_failed(#condition, __FILE__, __LINE__))
