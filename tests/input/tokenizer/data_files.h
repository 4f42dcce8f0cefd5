// Small tokenizers written by tools/make_test_tokenizers.py.
#pragma once

#include <string>

#include "paths.h"
#include "qkscope/tokenizer.h"

namespace qkscope {

inline std::string data_file(const std::string& name) {
  return source_path("tests/input/tokenizer/data/") + name + ".json";
}

inline Tokenizer load_small(const std::string& name) {
  return Tokenizer::load(data_file(name));
}

}  // namespace qkscope
