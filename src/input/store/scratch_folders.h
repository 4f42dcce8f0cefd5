// Local folders for files of object stores.
#pragma once

#include <string>

#include "input/store/store_address.h"

namespace qkscope {

// All folders are below QKSCOPE_SCRATCH, else XDG_CACHE_HOME/qkscope, else ~/.cache/qkscope.
//
//   runs/HASH-RUN/       data root of a running capture
//   stores/HASH/...      downloaded files
//   results/HASH-NAME/   output files before their upload
//   sweeps/HASH/NAME/    folder of a sweep, without captures and statistics
std::string run_scratch_folder(const StoreAddress& address, const std::string& run);
std::string fetched_scratch_folder(const StoreAddress& address);
std::string output_scratch_folder(const StoreAddress& address, const std::string& name);
std::string sweep_scratch_folder(const StoreAddress& address);

}  // namespace qkscope
