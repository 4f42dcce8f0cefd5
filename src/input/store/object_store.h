// Objects below one address of a store. Nothing is assumed of a store but that an object is there
// whole or not at all, and that of several who put one name with a condition one succeeds: there
// are no renames and no locks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "input/store/store_address.h"

namespace qkscope {

struct StoredObject {
  std::string name;  // below the address
  std::uint64_t bytes = 0;
  double modified = 0.0;  // seconds since 1970
};

// What stands for the content of an object.
struct ObjectContent {
  std::uint64_t bytes = 0;
  std::string checksum;  // XXH3, 16 hexadecimal digits

  bool operator==(const ObjectContent&) const = default;
};

class ObjectStore {
 public:
  virtual ~ObjectStore() = default;
  ObjectStore() = default;
  ObjectStore(const ObjectStore&) = delete;
  ObjectStore& operator=(const ObjectStore&) = delete;

  virtual const StoreAddress& address() const = 0;
  // An object in words: its whole address.
  std::string where(const std::string& name) const;

  virtual std::optional<StoredObject> find(const std::string& name) = 0;
  // The content of a small object; nothing where there is none.
  virtual std::optional<std::string> read(const std::string& name) = 0;
  // An object to a file, which appears whole. One of another size or checksum is fetched again,
  // and in the end bad input. Without `expected` whatever is there is taken.
  virtual void get(const std::string& name, const std::string& file,
                   const std::optional<ObjectContent>& expected) = 0;
  virtual ObjectContent put(const std::string& name, const std::string& file) = 0;
  // False where an object of this name is there already, unless it has this very content: then it
  // was put by an attempt whose answer was lost.
  virtual bool put_if_absent(const std::string& name, const std::string& content) = 0;
  // Everything whose name begins with "prefix/", sorted by name; of "" everything.
  virtual std::vector<StoredObject> list(const std::string& prefix) = 0;
  // What is not there any more is passed over.
  virtual void remove(const std::string& name) = 0;
};

// Says at once, in one line, when there is no such bucket, or nobody may read it with the
// credentials at hand.
std::unique_ptr<ObjectStore> open_store(const StoreAddress& address);

// Of a name that put_if_absent() has just put: a store that ignores the condition would let the
// next one put it too. That is a failure; the object is removed.
void check_condition(ObjectStore& store, const std::string& name);

void remove_objects(ObjectStore& store, const std::vector<std::string>& names);

// "20261116T130501-9f3a01c2d4e5f607": no two writers have the same.
std::string unique_name();

}  // namespace qkscope
