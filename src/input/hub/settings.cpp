#include "input/hub/settings.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/folder.h"
#include "base/io/mapped_file.h"
#include "input/checkpoint/hub_cache.h"

namespace qkscope {
namespace {

// Truth values as huggingface_hub parses them.
bool is_true(const char* name) {
  auto value = environment_variable(name);
  for (char& c : value) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

// Tokens are sent in an HTTP header, so line breaks would allow header injection. The error message
// must not contain the token.
std::string checked_token(const std::string& text, const std::string& where) {
  auto token = trimmed(text);
  if (std::any_of(token.begin(), token.end(),
                  [](char c) { return c <= ' ' || static_cast<unsigned char>(c) >= 0x7f; }))
    bad_input("{}: holds spaces or characters that no token has; expected one word (hf_...)",
              where);
  return token;
}

std::string find_token() {
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"})
    if (auto token = checked_token(environment_variable(name), name); !token.empty()) return token;
  auto path = environment_variable("HF_TOKEN_PATH");
  const bool somewhere = !environment_variable("HF_HOME").empty() ||
                         !environment_variable("XDG_CACHE_HOME").empty() ||
                         !environment_variable("HOME").empty();
  if (path.empty() && somewhere) path = hugging_face_home() + "/token";
  if (path.empty() || !path_exists(path)) return "";
  return checked_token(std::string(MappedFile(path).text()), path);
}

Url find_endpoint() {
  auto text = environment_variable("HF_ENDPOINT");
  if (text.empty()) text = "https://huggingface.co";
  while (text.ends_with('/')) text.pop_back();
  auto url = parse_url(text);
  refuse_plain_http(url, "HF_ENDPOINT");
  return url;
}

}  // namespace

HubSettings hub_settings() {
  HubSettings settings;
  settings.endpoint = find_endpoint();
  settings.token = find_token();
  settings.offline = is_true("HF_HUB_OFFLINE") || is_true("TRANSFORMERS_OFFLINE");
  if (const auto seconds = environment_variable("HF_HUB_DOWNLOAD_TIMEOUT"); !seconds.empty())
    settings.stall_seconds = static_cast<int>(
        std::clamp<std::int64_t>(parse_integer(seconds, "HF_HUB_DOWNLOAD_TIMEOUT"), 1, 3600));
  return settings;
}

}  // namespace qkscope
