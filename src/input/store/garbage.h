// What killed writers, and writers that lost to others, left in a store.
#pragma once

#include <vector>

#include "input/store/object_store.h"

namespace qkscope {

// Returns objects of stored folders below the store's address that neither the newest manifest nor
// the current run references and that are at least `older_than` seconds old. Objects with names
// that qkscope does not generate are ignored.
std::vector<StoredObject> garbage_in(ObjectStore& store, double now, double older_than);

}  // namespace qkscope
