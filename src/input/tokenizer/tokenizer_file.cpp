#include "input/tokenizer/tokenizer_file.h"

#include <filesystem>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/core/utf8.h"
#include "base/io/folder.h"
#include "base/io/json.h"
#include "base/io/mapped_file.h"
#include "input/tokenizer/json_cursor.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

AddedToken parse_added_token(const Json& json, const std::string& where) {
  const auto fail = [&](const std::string& what) {
    bad_input("{}: an added token {}: {}", where, what,
              json.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 200));
  };
  if (!json.is_object()) fail("is no object");
  if (!json.contains("content") || !json["content"].is_string()) fail("has no content");
  AddedToken token;
  token.content = json["content"].get<std::string>();
  for (const auto& [key, value] : json.items()) {
    bool* flag = key == "single_word"  ? &token.single_word
                 : key == "lstrip"     ? &token.lstrip
                 : key == "rstrip"     ? &token.rstrip
                 : key == "normalized" ? &token.normalized
                 : key == "special"    ? &token.special
                                       : nullptr;
    if (flag == nullptr) {
      if (key != "id" && key != "content" && key != "__type")
        fail("has an unknown key \"" + key + "\"");
      continue;
    }
    if (!value.is_boolean()) fail("has a \"" + key + "\" that is neither true nor false");
    *flag = value.get<bool>();
  }
  return token;
}

bool truncates_left(const Json& truncation, const std::string& where) {
  if (truncation.is_null()) return false;
  const auto direction = truncation.is_object() ? truncation.find("direction") : truncation.end();
  if (direction == truncation.end()) return false;
  if (*direction == "Left" || *direction == "Right") return *direction == "Left";
  bad_input("{}: truncation direction must be Left or Right", where);
}

void read_part(JsonCursor& cursor, const std::string& key, TokenizerFile& file) {
  if (key == "model") {
    file.model = read_bpe_file(cursor, file.path);
    return;
  }
  Json value = parse_json(cursor.skip(), fmt::format("{}: {}", file.path, key));
  Json* part = key == "normalizer"       ? &file.normalizer
               : key == "pre_tokenizer"  ? &file.pre_tokenizer
               : key == "post_processor" ? &file.post_processor
               : key == "decoder"        ? &file.decoder
                                         : nullptr;
  if (part != nullptr) {
    *part = std::move(value);
  } else if (key == "truncation") {
    file.truncates_left = truncates_left(value, file.path);
  } else if (key == "added_tokens") {
    if (!value.is_array()) bad_input("{}: added_tokens must be a list", file.path);
    for (const Json& token : value)
      file.added_tokens.push_back(parse_added_token(token, file.path));
  } else if (key == "version") {
    if (value != "1.0") bad_input("{}: version is {}, expected \"1.0\"", file.path, value.dump());
  } else if (key != "padding") {  // padding is ignored
    bad_input("{}: unknown key \"{}\"", file.path, key);
  }
}

// Reads a special token, which is a string or an object with "content".
std::string special_token(const Json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end()) return {};
  if (found->is_string()) return found->get<std::string>();
  if (found->is_object() && found->contains("content") && (*found)["content"].is_string())
    return (*found)["content"].get<std::string>();
  return {};
}

std::optional<bool> config_flag(const Json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end() || !found->is_boolean()) return std::nullopt;
  return found->get<bool>();
}

void read_config_tokens(const Json& config, const std::string& path, TokenizerFile& file) {
  const auto tokens = config.find("added_tokens_decoder");
  if (tokens == config.end() || !tokens->is_object()) return;
  std::map<std::int64_t, AddedToken> by_id;
  for (const auto& [id, token] : tokens->items())
    by_id[parse_integer(id, path + ": added_tokens_decoder")] = parse_added_token(token, path);
  for (auto& [id, token] : by_id) file.config_tokens.push_back(std::move(token));
}

void read_config(const std::string& path, TokenizerFile& file) {
  if (!path_exists(path)) return;
  const Json config = load_json(path);
  if (!config.is_object()) bad_input("{}: expected a JSON object", path);
  file.add_bos = config_flag(config, "add_bos_token");
  file.add_eos = config_flag(config, "add_eos_token");
  file.bos = special_token(config, "bos_token");
  file.eos = special_token(config, "eos_token");
  if (const auto side = config.find("truncation_side"); side != config.end()) {
    if (*side != "left" && *side != "right")
      bad_input("{}: truncation_side must be \"left\" or \"right\"", path);
    file.truncates_left = *side == "left";
  }
  read_config_tokens(config, path, file);
}

std::string find_file(const std::string& given) {
  if (!is_folder(given)) return given;
  const std::string path = (fs::path(given) / "tokenizer.json").string();
  if (!path_exists(path))
    bad_input(
        "{}: there is no tokenizer.json in this folder; other kinds of tokenizer files are not "
        "read",
        given);
  return path;
}

}  // namespace

TokenizerFile parse_tokenizer(std::string_view text, const std::string& path) {
  if (const auto at = find_invalid_utf8(text); at != std::string_view::npos)
    bad_input("{}: not UTF-8 at byte {}", path, at);
  TokenizerFile file;
  file.path = path;
  JsonCursor cursor(text, path);
  bool has_model = false;
  cursor.enter('{');
  while (cursor.next('}')) {
    const std::string key(cursor.key());
    has_model = has_model || key == "model";
    read_part(cursor, key, file);
  }
  cursor.finish();
  if (!has_model) bad_input("{}: has no \"model\", so it is no tokenizer.json", path);
  return file;
}

TokenizerFile read_tokenizer_file(const std::string& folder_or_file) {
  const std::string path = find_file(folder_or_file);
  const MappedFile mapped(path);
  TokenizerFile file = parse_tokenizer(mapped.text(), path);
  read_config((fs::path(path).parent_path() / "tokenizer_config.json").string(), file);
  return file;
}

}  // namespace qkscope
