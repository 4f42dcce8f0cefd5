// Fonts, sizes and colours of all figures.
#pragma once

#include <string>
#include <vector>

namespace qkscope::style {

// Sizes in inches: a single figure fits one column of a two-column paper; a grid of panels spans
// the full page width.
inline constexpr double kColumn = 3.4;
inline constexpr double kPage = 7.0;
inline constexpr double kHeight = 2.45;
inline constexpr int kDotsPerInch = 300;  // resolution of PNG files

inline constexpr char kFont[] = "Liberation Sans";
inline constexpr double kFontSize = 8;  // points
inline constexpr double kLabel = 7.5;   // axes of panels
inline constexpr double kSmall = 7;     // ticks, keys, titles of panels
inline constexpr double kTiny = 6.2;    // ticks of small panels
inline constexpr double kPhase = 6;     // names of phases
inline constexpr double kNote = 5.2;    // names of single heads

// Colours differ in lightness too, for colour-blind readers (palettes of Okabe and Ito, and Tol).
inline constexpr char kQuery[] = "#0072B2";
inline constexpr char kKey[] = "#CC3311";
inline constexpr char kRope[] = "#0072B2";
inline constexpr char kNope[] = "#E69F00";
inline constexpr char kAccent[] = "#009E73";
inline constexpr char kInk[] = "#333333";
inline constexpr char kFaint[] = "#BBBBBB";
inline constexpr char kHair[] = "#E4E4E4";

struct HeadClassStyle {
  const char* name;  // as in taxonomy.csv
  const char* title;
  const char* colour;
};
inline constexpr HeadClassStyle kClasses[] = {
    {"position_dominated", "position-dominated", "#0072B2"},
    {"q_positional", "Q-positional", "#332288"},
    {"k_positional", "K-positional", "#EE99BB"},
    {"content_focused", "content-focused", "#009E73"},
    {"mixed", "mixed", "#BBBBBB"}};

// End points of the colour gradients that encode position, from early to late.
inline constexpr char kQueryEarly[] = "#BFD7EA";
inline constexpr char kQueryLate[] = "#08306B";
inline constexpr char kKeyEarly[] = "#FBC4B4";
inline constexpr char kKeyLate[] = "#7F0A0A";

// Colour scales of heat maps, from low to high at even steps.
inline const std::vector<std::string> kBlues = {"#F4F8FC", "#9CC3E0", "#3B82BD", "#08306B"};
inline const std::vector<std::string> kReds = {"#FDF5F2", "#F6B09A", "#DC5A42", "#7F0A0A"};
inline const std::vector<std::string> kGreens = {"#F4FAF7", "#93D2BC", "#2E9E7D", "#00402E"};
// Cividis: perceptually uniform and readable with colour vision deficiency.
inline const std::vector<std::string> kCividis = {"#00204D", "#414D6B", "#7C7B78", "#BCAF6F",
                                                  "#FFEA46"};
// Diverging scale: blue below zero, white at zero, red above.
inline const std::vector<std::string> kAroundZero = {"#2166AC", "#92C5DE", "#F7F7F7", "#F4A582",
                                                     "#B2182B"};
// Colours of model families, in order of appearance.
inline const std::vector<std::string> kFamilies = {"#0072B2", "#E69F00", "#009E73", "#CC79A7",
                                                   "#882255", "#56B4E9", "#999933", "#333333"};

// gnuplot's point types: filled circle, filled square, filled diamond.
inline constexpr int kCircle = 7;
inline constexpr int kSquare = 5;
inline constexpr int kDiamond = 13;
inline constexpr int kFamilyPoints[] = {7, 5, 13, 9, 11, 15};  // also two triangles and a pentagon

}  // namespace qkscope::style
