#include "qkscope/version.h"

#include "base/core/error.h"

namespace qkscope {

Version library_version() {
  return kHeaderVersion;
}

const char* version_string() {
  static const auto text =
      fmt::format("{}.{}.{}", kHeaderVersion.major, kHeaderVersion.minor, kHeaderVersion.patch);
  return text.c_str();
}

}  // namespace qkscope
