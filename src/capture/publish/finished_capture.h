// Checks that a capture may be published: it is finished and all its files belong to one run.
#pragma once

#include <string>
#include <vector>

namespace qkscope {

struct FinishedCapture {
  std::string model;
  std::vector<std::string> files;   // relative to the data root, sorted
  std::vector<std::string> others;  // other names in the data root, which are not published
  // Destination from the run's configuration; "" when not configured.
  std::string repo;
  std::string branch;
  bool private_repo = false;
};

// Throws bad input when the capture is not finished, when a head file is missing or belongs to
// another run, or when another program wrote the capture.
FinishedCapture check_finished_capture(const std::string& data_root);

}  // namespace qkscope
