// What a user says about tasks for Slurm, in a sweep's file or on the command line.
#pragma once

#include "base/yaml/yaml_config.h"
#include "qkscope/experimental/study.h"

namespace qkscope {

// The section `slurm` of a sweep's file. Bad input names the key, its line and what was expected.
SlurmOptions read_slurm(YamlSection section);

// The same of options that came another way: bad input names the option.
void check_slurm(const SlurmOptions& options);

}  // namespace qkscope
