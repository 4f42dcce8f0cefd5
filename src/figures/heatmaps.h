// Cells coloured by a number.
#pragma once

#include <string>
#include <vector>

namespace qkscope {

// `set palette` from colours at even steps.
std::string palette(const std::vector<std::string>& colours);

inline const std::vector<std::string> kBlues = {"#F4F8FC", "#9CC3E0", "#3B82BD", "#08306B"};
inline const std::vector<std::string> kReds = {"#FDF5F2", "#F6B09A", "#DC5A42", "#7F0A0A"};
inline const std::vector<std::string> kGreens = {"#F4FAF7", "#93D2BC", "#2E9E7D", "#00402E"};
// From dark blue over grey to yellow: even in lightness, and seen alike by all readers.
inline const std::vector<std::string> kCividis = {"#00204D", "#414D6B", "#7C7B78", "#BCAF6F",
                                                  "#FFEA46"};

// Unit cells around (x, y), which are columns of the CSV, as is the value.
std::string plot_unit_cells(int x, int y, int value);

}  // namespace qkscope
