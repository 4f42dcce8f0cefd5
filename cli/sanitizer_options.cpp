// Disables leak checks at exit in the sanitizer build: they take seconds in every program that
// links Arrow. The test programs link the same libraries and do check for leaks.
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "detect_leaks=0";
}
