// The `decoder` of a tokenizer.json: from token strings back to text.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/io/json_fwd.h"

namespace qkscope {

class Decoder {
 public:
  Decoder() = default;
  Decoder(const Json& spec, const std::string& where);  // null: tokens with spaces between

  std::string decode(std::vector<std::string> tokens) const;

 private:
  using Step = std::function<void(std::vector<std::string>&)>;
  void read(const Json& spec, const std::string& where);

  std::vector<Step> steps_;
  bool present_ = false;
};

}  // namespace qkscope
