// A capture that may be published: whole, and of one run.
#pragma once

#include <string>
#include <vector>

namespace qkscope {

struct FinishedCapture {
  std::string model;
  std::vector<std::string> files;   // relative to the data root, in order
  std::vector<std::string> others;  // what lies there too and is no part of the capture
  // Where the run's configuration wants it; "" where it says nothing.
  std::string repo;
  std::string branch;
  bool private_repo = false;
};

// Bad input when the capture is not finished, when a head file is missing or belongs to another
// run, or when another program made it; the message says which.
FinishedCapture check_finished_capture(const std::string& data_root);

}  // namespace qkscope
