// What runs are called in figures, and which family of models they belong to.
#pragma once

#include <string>
#include <string_view>

namespace qkscope {

// A path becomes its last folder, and the folder of a model in the Hub's cache the model's name;
// any other label stays as it is.
std::string shown_label(const std::string& label);

// "qwen3" of "Qwen/Qwen3-4B-Base": the last part of the name up to and with its first version
// number, in lower case. A size ("7b") or a step of training ("1000") is no version; names that
// begin with fewer than three letters ("S1-40K") tell no family, "".
std::string family_of(std::string_view model);

// Whether two names are of one model: the last parts without case, '-' and '_' are the same.
bool same_model(std::string_view x, std::string_view y);

}  // namespace qkscope
