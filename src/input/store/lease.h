// Putting an object only where there is none, in a store that has no such condition: by a lease,
// an object beside it that says who may put it and until when.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace qkscope {

inline constexpr char kLeaseSuffix[] = ".lease";

// What a lease needs of a store. Reads see the last write.
struct LeaseAccess {
  std::function<std::optional<std::string>(const std::string& name)> read;
  std::function<void(const std::string& name, const std::string& content)> write;
  std::function<void(const std::string& name)> remove;
};

struct LeaseTimes {
  double lasts = 60.0;   // seconds; who died with a lease holds others up for so long
  double settles = 1.0;  // seconds after which two who took it at once both see whose it is
};

// False where an object of this name is there already. Sure as long as nobody's writes take longer
// than a lease settles, and nobody sleeps longer than it lasts while they hold it.
bool put_with_lease(const LeaseAccess& store, const std::string& name, const std::string& content,
                    const LeaseTimes& times = {});

}  // namespace qkscope
