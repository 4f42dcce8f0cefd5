#include "cli/head_list.h"

#include <algorithm>
#include <charconv>

#include "cli/error.h"
#include "qkscope/experimental/text.h"

namespace qkscope::cli {
namespace {

constexpr int kMost = 1 << 20;

// A number that fills the whole text, or -1.
int number_of(std::string_view text) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value < kMost ? value : -1;
}

std::string without_spaces(std::string text) {
  std::erase(text, ' ');
  return text;
}

// "(3,5),(3,6)" becomes "3.5,3.6".
std::string without_brackets(const std::string& text) {
  std::string plain;
  bool inside = false;
  for (const char c : text) {
    if (c == '(') {
      inside = true;
    } else if (c == ')') {
      inside = false;
    } else {
      plain += inside && c == ',' ? '.' : c;
    }
  }
  return plain;
}

}  // namespace

std::vector<int> parse_layers(const std::string& text) {
  std::vector<int> layers;
  for (const auto& part : split(without_spaces(text), ',')) {
    const auto dash = part.find('-');
    const int first = number_of(std::string_view(part).substr(0, dash));
    const int last =
        dash == std::string::npos ? first : number_of(std::string_view(part).substr(dash + 1));
    if (first < 0 || last < first)
      bad_input("--layers {}: '{}' is not a layer; expected numbers and ranges, as 0,4-7", text,
                part);
    for (int layer = first; layer <= last; ++layer) layers.push_back(layer);
  }
  return layers;
}

std::vector<HeadId> parse_heads(const std::string& text, std::string_view option) {
  std::vector<HeadId> heads;
  for (const auto& part : split(without_brackets(without_spaces(text)), ',')) {
    const auto dot = part.find('.');
    const int layer = number_of(std::string_view(part).substr(0, dot));
    const int head =
        dot == std::string::npos ? -1 : number_of(std::string_view(part).substr(dot + 1));
    if (layer < 0 || head < 0)
      bad_input("{} {}: '{}' is not a head; expected LAYER.HEAD, as 3.5,3.6 or (3,5),(3,6)", option,
                text, part);
    heads.push_back({layer, head, HeadKind::query});
  }
  return heads;
}

}  // namespace qkscope::cli
