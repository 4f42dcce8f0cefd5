// Invariants for every input that a parser accepts.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "base/core/error.h"

// Aborts the process, which libFuzzer and the replay program report as a crash.
#define FUZZ_EXPECT(condition)                                                      \
  do {                                                                              \
    if (!(condition)) {                                                             \
      std::fprintf(stderr, "%s:%d: %s is false\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                 \
    }                                                                               \
  } while (false)

namespace qkscope {

// Rejected input must be reported as bad input.
template <typename Read>
void refused_or(Read read) {
  try {
    read();
  } catch (const Error& error) {
    FUZZ_EXPECT(error.kind() == ErrorKind::bad_input);
  }
}

}  // namespace qkscope
