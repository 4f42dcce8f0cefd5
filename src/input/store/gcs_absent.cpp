// Replaces gcs_store.cpp in builds without Google Cloud Storage.
#include "base/core/error.h"
#include "input/store/object_store.h"

namespace qkscope {

std::unique_ptr<ObjectStore> open_gcs_store(const StoreUri& address) {
  throw_failure(
      "{}: this build of qkscope cannot reach Google Cloud Storage: it was made with an Arrow "
      "without it; build with the pyarrow wheel",
      address.to_string());
}

}  // namespace qkscope
