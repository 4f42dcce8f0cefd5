#include "input/store/object_store.h"

#include <ctime>
#include <random>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "base/core/error.h"
#include "input/hub/transfer.h"
#include "input/store/arrow_store.h"

namespace qkscope {

std::string ObjectStore::where(const std::string& name) const {
  const auto base = address().to_string();
  return name.empty() ? base : base + "/" + name;
}

std::unique_ptr<ObjectStore> open_store(const StoreAddress& address) {
  switch (address.scheme) {
    case StoreAddress::Scheme::s3:
      return open_s3_store(address);
    case StoreAddress::Scheme::gs:
      return open_gcs_store(address);
    case StoreAddress::Scheme::file:
      break;
  }
  return open_local_store(address);
}

void verify_conditional_put(ObjectStore& store, const std::string& name) {
  if (!store.put_if_absent(name, "a second one\n")) return;
  store.remove(name);
  failure(
      "{}: the store puts objects over others although it was told not to (If-None-Match: *); two "
      "writers could mix there, so nothing is written",
      store.address().to_string());
}

void remove_objects(ObjectStore& store, const std::vector<std::string>& names) {
  run_transfers(names.size(),
                [&](std::size_t i, const std::atomic<bool>&) { store.remove(names[i]); });
}

std::string unique_name() {
  std::random_device random;
  const auto now = std::time(nullptr);
  return fmt::format("{:%Y%m%dT%H%M%S}-{:08x}{:08x}", fmt::gmtime(now), random(), random());
}

}  // namespace qkscope
