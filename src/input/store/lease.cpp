
#include <chrono>
#include <thread>

#include "base/io/json.h"
#include "input/hub/http.h"
#include "input/store/object_store.h"

namespace qkscope {
namespace {

void wait(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

struct Lease {
  std::string owner;
  double until = 0.0;  // Unix time in seconds
};

// A malformed lease has no owner.
Lease read_lease(const std::string& text) {
  const auto json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return {};
  return {json.value("owner", ""), json.value("until", 0.0)};
}

}  // namespace

bool put_with_lease(const LeaseAccess& store, const std::string& name, const std::string& content,
                    const LeaseTimes& times) {
  const auto lease_name = name + kLeaseSuffix;
  const auto owner = unique_name();
  while (!store.read(name)) {
    const auto there = store.read(lease_name);
    if (there && read_lease(*there).until > unix_seconds()) {
      wait(times.settles / 2);
      continue;
    }
    store.write(lease_name,
                Json{{"owner", owner}, {"until", unix_seconds() + times.lasts}}.dump() + "\n");
    wait(times.settles);
    const auto mine = store.read(lease_name);
    if (!mine || read_lease(*mine).owner != owner) continue;
    const bool absent = !store.read(name);
    if (absent) store.write(name, content);
    store.remove(lease_name);
    return absent;
  }
  return false;
}

}  // namespace qkscope
