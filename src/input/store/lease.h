// Emulates a conditional put ("only if absent") with a lease object that names its owner and
// expiry, for stores without such a condition.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace qkscope {

inline constexpr char kLeaseSuffix[] = ".lease";

// Store operations used by a lease. Reads must see the last write.
struct LeaseAccess {
  std::function<std::optional<std::string>(const std::string& name)> read;
  std::function<void(const std::string& name, const std::string& content)> write;
  std::function<void(const std::string& name)> remove;
};

struct LeaseTimes {
  double lasts = 60.0;   // seconds until expiry; a crashed owner blocks others for this long
  double settles = 1.0;  // seconds after which concurrent writers see the same owner
};

// Returns false if the object already exists. Safe as long as no write takes longer than `settles`
// and no owner is suspended for longer than `lasts`.
bool put_with_lease(const LeaseAccess& store, const std::string& name, const std::string& content,
                    const LeaseTimes& times = {});

}  // namespace qkscope
