// What a model's config.json says about heads whose files do not say it themselves.
#pragma once

#include <optional>
#include <string>

#include "qkscope/captures.h"
#include "qkscope/model.h"

namespace qkscope {

class ModelFacts {
 public:
  // A checkpoint's folder, a model id, or ID@REVISION; of a model on the Hub only config.json is
  // fetched.
  ModelFacts(const std::string& name, bool quiet);

  HeadCounts counts() const;
  RopeInfo rope(int layer) const;
  std::optional<std::int32_t> window(int layer) const;

  // Bad input where the model cannot be the one that the capture is of: other head counts, no such
  // head, vectors of another length.
  void check_counts(const HeadCounts& captured) const;
  void check_head(const HeadId& id, int head_dim, const std::string& file) const;

 private:
  std::string name_;
  ModelConfig model_;
};

}  // namespace qkscope
