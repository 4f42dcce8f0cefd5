// The "model" of a tokenizer.json: vocabulary and merges, read in one pass.
#pragma once

#include <string>

#include "tokenizer/bpe_model.h"
#include "tokenizer/json_cursor.h"

namespace qkscope {

// The cursor stands before the model's object. `where` names the file in messages.
BpeFile read_model(JsonCursor& cursor, const std::string& where);

}  // namespace qkscope
