// Objects below one address of an object store. Assumes only that objects appear atomically and
// that exactly one of several concurrent conditional puts succeeds; renames and locks are not
// needed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "input/store/store_address.h"

namespace qkscope {

struct StoredObject {
  std::string name;  // relative to the address
  std::uint64_t bytes = 0;
  double modified = 0.0;  // Unix time in seconds
};

// Size and checksum of an object.
struct ObjectContent {
  std::uint64_t bytes = 0;
  std::string checksum;  // XXH3-64 as 16 hexadecimal digits

  bool operator==(const ObjectContent&) const = default;
};

class ObjectStore {
 public:
  virtual ~ObjectStore() = default;
  ObjectStore() = default;
  ObjectStore(const ObjectStore&) = delete;
  ObjectStore& operator=(const ObjectStore&) = delete;

  virtual const StoreAddress& address() const = 0;
  // Returns the full address of an object, for messages.
  std::string where(const std::string& name) const;

  virtual std::optional<StoredObject> find(const std::string& name) = 0;
  // Returns the content of a small object, or nullopt if it does not exist.
  virtual std::optional<std::string> read(const std::string& name) = 0;
  // Downloads an object to a file, which appears atomically. Retries if size or checksum differ
  // from `expected`, then throws bad input. Without `expected`, any content is accepted.
  virtual void get(const std::string& name, const std::string& file,
                   const std::optional<ObjectContent>& expected) = 0;
  virtual ObjectContent put(const std::string& name, const std::string& file) = 0;
  // Conditional put: returns false if an object of this name exists with other content. Identical
  // content counts as success, because an earlier attempt may have lost its response.
  virtual bool put_if_absent(const std::string& name, const std::string& content) = 0;
  // Lists the objects whose name starts with "prefix/" (all objects for ""), sorted by name.
  virtual std::vector<StoredObject> list(const std::string& prefix) = 0;
  // Removes an object. No effect if it does not exist.
  virtual void remove(const std::string& name) = 0;
};

// Opens a store. Throws an error if the bucket does not exist or cannot be read with the current
// credentials.
std::unique_ptr<ObjectStore> open_store(const StoreAddress& address);

// Verifies that the store honours conditional puts, using a name that put_if_absent() has just
// created. Throws a failure and removes the object if the store overwrites it.
void verify_conditional_put(ObjectStore& store, const std::string& name);

void remove_objects(ObjectStore& store, const std::vector<std::string>& names);

// Returns a unique name of the form "20261116T130501-9f3a01c2d4e5f607" (UTC time and random bits).
std::string unique_name();

// ---- Conditional puts for stores without them, with a lease object that names owner and expiry
// ----

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
