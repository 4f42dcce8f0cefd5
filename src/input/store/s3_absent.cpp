// Replaces s3_store.cpp in builds without S3.
#include "base/core/error.h"
#include "input/store/object_store.h"

namespace qkscope {

std::unique_ptr<ObjectStore> open_s3_store(const StoreUri& address) {
  throw_failure(
      "{}: this build of qkscope cannot reach S3: it was made with an Arrow without S3, or without "
      "libcurl; build with the pyarrow wheel and libcurl4-openssl-dev",
      address.to_string());
}

}  // namespace qkscope
