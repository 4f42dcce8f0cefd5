// Branches of a repository as checkpoints of a training.
#pragma once

#include <string>

#include "qkscope/experimental/study.h"

namespace qkscope {

// Phase and step by the rule of names: "stage1-step-40000", "lc-4k-to-32k-step-4000", "step1000",
// "stage2-step1000-tokens3B", "checkpoint-500", "iter_20". The label is left empty.
CheckpointBranch parse_branch(const std::string& name);

// Whether `a` comes before `b`: numbers inside names count as numbers.
bool natural_less(const std::string& a, const std::string& b);

// "40K", "1.2M", "3.44M", "512".
std::string short_step(std::int64_t step);

}  // namespace qkscope
