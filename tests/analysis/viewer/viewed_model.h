// Small models with the queries and keys of a text, for tests of the viewer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "analysis/viewer/head_attention.h"
#include "paths.h"
#include "qkscope/model.h"

namespace qkscope {

inline std::shared_ptr<const Model> golden_model(const std::string& name) {
  return std::make_shared<Model>(Model::load(golden_path(name), {.device = "cpu"}));
}

// Token ids that repeat with a long period, within the vocabularies of the golden models.
inline std::vector<std::int32_t> some_tokens(std::int64_t count) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < count; ++i)
    ids.push_back(static_cast<std::int32_t>(3 + (i * i + 7 * i) % 43));
  return ids;
}

inline QueryKeyStore viewed_model(const std::shared_ptr<const Model>& model,
                                  const std::vector<std::int32_t>& ids,
                                  std::int64_t memory = std::int64_t{1} << 40) {
  const auto plan = plan_query_key_storage(model->config(), model->device(), model->dtype(),
                                           static_cast<std::int64_t>(ids.size()), memory);
  return {model, ids, plan, true};
}

}  // namespace qkscope
