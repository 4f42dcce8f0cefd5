// What comes with qkscope: data (the demo, published numbers, configurations) and helper programs.
#pragma once

#include <string>
#include <vector>

namespace qkscope {

// Where that data may lie, the first place first: demo/, published/ and configs/ are folders in it.
// $QKSCOPE_DATA where it is set, and nothing else; otherwise share/qkscope of the installation that
// the library or the program belongs to, then share/ of the source tree this was built from (whose
// configs/ lies beside share/), which packages leave out. They need not exist.
std::vector<std::string> data_folders();

// Where programs may lie that only qkscope starts, as a package that stands alone brings gnuplot:
// libexec/qkscope of the installation. They need not exist.
std::vector<std::string> helper_folders();

}  // namespace qkscope
