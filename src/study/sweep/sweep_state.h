// What the class Sweep holds, for the rooms after this one.
#pragma once

#include <string>

#include "qkscope/experimental/study.h"
#include "study/sweep/sweep_config.h"
#include "study/sweep/sweep_folder.h"

namespace qkscope {

struct Sweep::State {
  SweepConfig config;
  SweepFolder folder;
  std::string place;
};

}  // namespace qkscope
