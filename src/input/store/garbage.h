// What killed writers, and writers that lost to others, left in a store.
#pragma once

#include <vector>

#include "input/store/object_store.h"

namespace qkscope {

// Of all stored folders below the store's address: objects that neither the newest manifest nor the
// run that is going on names, `older_than` seconds old at least. Only names that qkscope gives are
// looked at.
std::vector<StoredObject> garbage_in(ObjectStore& store, double now, double older_than);

}  // namespace qkscope
