// What must hold for every input that a parser accepts.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "base/core/error.h"

// Ends the process, which is what both libFuzzer and the replay report.
#define FUZZ_EXPECT(condition)                                                      \
  do {                                                                              \
    if (!(condition)) {                                                             \
      std::fprintf(stderr, "%s:%d: %s is false\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                 \
    }                                                                               \
  } while (false)

namespace qkscope {

// What is refused is bad input, whatever the bytes are.
template <typename Read>
void refused_or(Read read) {
  try {
    read();
  } catch (const Error& error) {
    FUZZ_EXPECT(error.kind() == ErrorKind::bad_input);
  }
}

}  // namespace qkscope
