// Features of transcoders or sparse autoencoders (SAE), which split residual-stream components.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "input/checkpoint/safetensors.h"
#include "qkscope/tensor.h"

namespace qkscope {

// A feature that is active at some of the chosen positions.
struct ActiveFeature {
  std::int64_t number = 0;
  Tensor direction;    // (1, d_model)
  Tensor activations;  // (positions, 1)
};

// A safetensors file with {component}.decoder (features, d_model), the directions that are added to
// the residual stream, and {component}.activations (tokens, features).
class FeatureFile {
 public:
  // Throws a bad-input error if shapes do not match the model and the text.
  FeatureFile(const std::string& path, std::int64_t tokens, std::int64_t d_model);

  bool has(const std::string& component) const { return components_.contains(component); }
  // Returns the features that are active at the given positions and marks the component as used.
  std::vector<ActiveFeature> active(const std::string& component,
                                    std::span<const std::int64_t> positions);
  // Throws a bad-input error that names a component in the file that was never used.
  void check_all_used() const;

 private:
  // Returns a floating-point matrix from the file.
  ConstTensorView matrix(const std::string& component, const char* ending) const;

  SafetensorsFile file_;
  std::map<std::string, bool> components_;  // whether the component was asked for
};

}  // namespace qkscope
