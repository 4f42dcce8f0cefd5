// The line of a log that says why a task did not end well.
#pragma once

#include <string>
#include <string_view>

namespace qkscope {

// Of the log's text: the last line with an error of the program, of its script or of Slurm; else
// the last line that says anything.
std::string telling_line(std::string_view text);

// The same of a file, from its end; "" where it is not there or empty.
std::string telling_line_of(const std::string& file);

}  // namespace qkscope
