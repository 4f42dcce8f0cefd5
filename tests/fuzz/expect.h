// What must hold for every input that a parser accepts.
#pragma once

#include <cstdio>
#include <cstdlib>

// Ends the process, which is what both libFuzzer and the replay report.
#define FUZZ_EXPECT(condition)                                                      \
  do {                                                                              \
    if (!(condition)) {                                                             \
      std::fprintf(stderr, "%s:%d: %s is false\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                 \
    }                                                                               \
  } while (false)
