#include <algorithm>

#include "base/core/translate_exceptions.h"
#include "base/io/folder.h"
#include "engine/model/loaded_checkpoint.h"
#include "engine/model/tensor_table.h"
#include "input/checkpoint/checkpoint.h"
#include "input/checkpoint/gguf_file.h"
#include "qkscope/model.h"

namespace qkscope {
namespace {

// Weight files themselves; an index alone says only which tensors there would be.
bool has_weight_files(const std::string& folder) {
  if (!find_gguf(folder).empty()) return true;
  const auto names = names_in(folder);
  return std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return name.ends_with(".safetensors") || name.ends_with(".bin");
  });
}

void inspect_weights(const std::string& folder, CheckpointInfo& info) {
  const auto checkpoint = Checkpoint::open(folder);
  info.widened_bytes = check_weights(info.config, checkpoint);
  info.has_weights = true;
  info.bytes = checkpoint.bytes();
  for (const auto& name : checkpoint.names()) info.tensors.push_back(checkpoint.info(name));
}

void inspect_index(const std::string& folder, CheckpointInfo& info) {
  const auto indexed = indexed_tensors(folder);
  if (indexed.index.empty()) return;
  check_names(info.config, indexed.names, indexed.index);
  info.indexed_tensors = static_cast<std::int64_t>(indexed.names.size());
}

}  // namespace

CheckpointInfo inspect_checkpoint(const std::string& folder) {
  return translate_exceptions([&] {
    CheckpointInfo info;
    info.config = read_model_config(folder);
    if (has_weight_files(folder))
      inspect_weights(folder, info);
    else
      inspect_index(folder, info);
    return info;
  });
}

}  // namespace qkscope
