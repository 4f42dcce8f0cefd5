#include "core/error.h"

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace qkscope {

void system_error(const std::string& operation, const std::string& path, int error) {
  const bool user_can_mend = error == ENOENT || error == EACCES || error == EISDIR ||
                             error == ENOTDIR || error == EROFS || error == EPERM;
  const auto message = fmt::format("{}: cannot {}: {}", path, operation, std::strerror(error));
  throw Error(user_can_mend ? ErrorKind::bad_input : ErrorKind::failure, message);
}

void assertion_failed(const char* condition, const char* file, int line) {
  const auto name = std::filesystem::path(file).filename().string();
  failure("internal error: {} is false at {}:{}; please report this", condition, name, line);
}

}  // namespace qkscope
