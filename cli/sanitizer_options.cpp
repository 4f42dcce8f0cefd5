// Only in the sanitizer build: the search for leaks takes seconds at the end of every program that
// carries Arrow. The test programs, which run the same libraries, do search.
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "detect_leaks=0";
}
