// Where on this machine lies what belongs to a store.
#pragma once

#include <string>

#include "input/store/store_address.h"

namespace qkscope {

// Below QKSCOPE_SCRATCH, else XDG_CACHE_HOME/qkscope, else ~/.cache/qkscope.
//
//   runs/HASH-RUN/       a run that is going on: what a local data root would be
//   stores/HASH/...      files that were fetched
//   results/HASH-NAME/   what is written before it is put into the store
//   sweeps/HASH/NAME/    what the folder of a sweep would be, but for captures and statistics
std::string run_place(const StoreAddress& address, const std::string& run);
std::string fetched_place(const StoreAddress& address);
std::string output_place(const StoreAddress& address, const std::string& name);
std::string sweep_place(const StoreAddress& address);

}  // namespace qkscope
