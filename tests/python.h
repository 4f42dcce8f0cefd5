// Runs scripts with the Python environment of the tests.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/core/error.h"
#include "paths.h"

namespace qkscope {

// The exit status of `script` (a path within the project); arguments may not hold quotes.
inline int run_python(const std::string& script, const std::vector<std::string>& arguments) {
  const std::string python = source_path(".venv/bin/python");
  EXPECT_TRUE(std::filesystem::exists(python)) << python << ": ./run.sh test makes it";
  auto command = fmt::format("'{}' '{}'", python, source_path(script));
  for (const auto& argument : arguments) command += fmt::format(" '{}'", argument);
  return std::system(command.c_str());
}

}  // namespace qkscope
