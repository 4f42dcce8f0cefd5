#include "base/core/error.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <new>
#include <system_error>

namespace qkscope {

ErrorKind error_kind_from_errno(int error) {
  constexpr int kUserErrors[] = {ENOENT, EACCES, EISDIR,       ENOTDIR,
                                 EROFS,  EPERM,  ENAMETOOLONG, ELOOP};
  const bool by_user = std::ranges::find(kUserErrors, error) != std::end(kUserErrors);
  return by_user ? ErrorKind::bad_input : ErrorKind::failure;
}

void throw_system_error(const std::string& operation, const std::string& path, int error) {
  throw Error(error_kind_from_errno(error),
              fmt::format("{}: cannot {}: {}", path, operation, std::strerror(error)));
}

void assertion_failed(const char* condition, const char* file, int line) {
  const auto name = std::filesystem::path(file).filename().string();
  throw_failure("internal error: {} is false at {}:{}; please report this", condition, name, line);
}

void rethrow_as_error() {
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const std::filesystem::filesystem_error& error) {
    throw_system_error("use it", error.path1().string(), error.code().value());
  } catch (const std::system_error& error) {
    throw_failure("the system refused: {}", error.what());
  } catch (const std::bad_alloc&) {
    throw_failure("out of memory");
  } catch (const std::exception& error) {
    throw_failure("internal error: {}; please report this", error.what());
  } catch (...) {
    throw_failure("internal error: an exception of no known type; please report this");
  }
}

}  // namespace qkscope
