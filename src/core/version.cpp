#include "qkscope/version.h"

#include "core/error.h"

namespace qkscope {

Version library_version() {
  return kHeaderVersion;
}

const char* version_string() {
  static const auto text =
      fmt::format("{}.{}.{}", kHeaderVersion.major, kHeaderVersion.minor, kHeaderVersion.patch);
  return text.c_str();
}

void check_version(Version headers) {
  const auto library = library_version();
  if (headers.major == library.major && headers.minor == library.minor) return;
  failure(
      "the program was compiled with the headers of qkscope {}.{}.{} and runs with the library of "
      "{}: compile it again, or install the library it was made for",
      headers.major, headers.minor, headers.patch, version_string());
}

}  // namespace qkscope
