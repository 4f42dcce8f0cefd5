#include "analysis/figures/run_names.h"

#include <algorithm>

namespace qkscope {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return result;
}

std::string_view last_part(std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  const auto slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

// "org/name" is a model of the Hub, not a path.
bool looks_like_a_path(std::string_view text) {
  for (const char* start : {"/", "./", "../", "~/"})
    if (text.starts_with(start)) return true;
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) {
    return is_letter(c) || is_digit(c) || std::string_view("._+-/").find(c) != std::string::npos;
  });
  return plain && std::count(text.begin(), text.end(), '/') > 1;
}

}  // namespace

std::string shown_label(const std::string& label) {
  if (!looks_like_a_path(label)) return label;
  constexpr std::string_view kCached = "models--";
  if (const auto at = label.rfind("/models--"); at != std::string::npos) {
    const auto begin = at + 1 + kCached.size();
    std::string name = label.substr(begin, label.find('/', begin) - begin);
    if (const auto dashes = name.find("--"); dashes != std::string::npos)
      name.replace(dashes, 2, "/");
    return name;
  }
  const auto last = last_part(label);
  return last.empty() ? label : std::string(last);
}

std::string family_of(std::string_view model) {
  const std::string name = lower(last_part(shown_label(std::string(model))));
  std::size_t at = 0;
  while (at < name.size() && is_letter(name[at])) ++at;
  constexpr std::size_t kShortest = 3;
  if (at < kShortest) return "";
  std::string family = name.substr(0, at);
  if (at < name.size() && (name[at] == '-' || name[at] == '_')) ++at;
  std::size_t end = at;
  while (end < name.size() && (is_digit(name[end]) || name[end] == '.')) ++end;
  const std::string version = name.substr(at, end - at);
  const bool small = std::min(version.find('.'), version.size()) <= 2;
  if (small && (end == name.size() || !is_letter(name[end]))) family += version;
  return family;
}

bool same_model(std::string_view x, std::string_view y) {
  const auto key = [](std::string_view name) {
    std::string text = lower(last_part(name));
    std::erase_if(text, [](char c) { return c == '-' || c == '_'; });
    return text;
  };
  return key(x) == key(y) && !key(x).empty();
}

}  // namespace qkscope
