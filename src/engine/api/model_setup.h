// What the options of a model mean: the checkpoint as it is to run, and the device it runs on.
#pragma once

#include <string>

#include "engine/device/backend.h"
#include "engine/model/loaded_checkpoint.h"
#include "qkscope/model.h"

namespace qkscope {

LoadedCheckpoint load_checkpoint(const std::string& folder, const ModelOptions& options);

BackendOptions backend_options(const LoadedCheckpoint& checkpoint, const ModelOptions& options);

}  // namespace qkscope
