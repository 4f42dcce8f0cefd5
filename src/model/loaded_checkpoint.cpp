#include "model/loaded_checkpoint.h"

namespace qkscope {

LoadedCheckpoint load_model(const std::string& folder, const Json& overrides) {
  LoadedCheckpoint model{Checkpoint::open(folder), {}, {}};
  const Json config = overrides.is_null() ? model.checkpoint.config()
                                          : merge_overrides(model.checkpoint.config(), overrides);
  model.config = read_model_config(config, folder + "/config.json");
  model.weights = bind_weights(model.config, model.checkpoint);
  return model;
}

}  // namespace qkscope
