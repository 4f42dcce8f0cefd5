#include "input/tokenizer/tokenizer_file.h"

#include <filesystem>
#include <map>
#include <utility>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/folder.h"
#include "base/io/mapped_file.h"
#include "input/tokenizer/tokenizer_components.h"

namespace qkscope {
namespace {

// Maximum size of continuing_subword_prefix in bytes: byte fallback turns each byte into a token.
constexpr std::size_t kLongestPrefix = 64;

class BpeModelSpecReader {
 public:
  BpeModelSpecReader(JsonCursor& cursor, std::string where)
      : cursor_(cursor), where_(std::move(where)) {}

  BpeModelSpec read() {
    cursor_.enter_container('{');
    while (cursor_.next_member('}')) read_member(std::string(cursor_.read_key()));
    if (!has_type_ && !has_merges_)
      reject("{}: the model has neither a type nor merges; only BPE models are read", where_);
    if (!has_vocabulary_ || !has_merges_)
      reject("{}: the BPE model needs \"vocab\" and \"merges\"", where_);
    if (merges_late_) {
      const std::size_t end = cursor_.position();
      cursor_.seek(merges_begin_);
      read_merges();
      cursor_.seek(end);
    }
    return std::move(file_);
  }

 private:
  void read_member(const std::string& key) {
    if (key == "vocab") return read_vocabulary();
    if (key == "merges") {
      if (has_merges_) fail(key, "is there twice");
      has_merges_ = true;
      merges_begin_ = cursor_.position();
      // The merges need the vocabulary and the subword prefix, which may follow later in the file.
      if (has_vocabulary_ && has_prefix_) return read_merges();
      merges_late_ = true;
      cursor_.read_raw_value();
      return;
    }
    read_setting(key, parse_json(cursor_.read_raw_value(), where_ + ": model." + key));
  }

  void read_setting(const std::string& key, const Json& value) {
    const auto flag = [&] {
      if (!value.is_boolean() && !value.is_null()) fail(key, "must be true or false");
      return value.is_boolean() && value.get<bool>();
    };
    const auto text = [&] {
      if (!value.is_string() && !value.is_null()) fail(key, "must be a string or null");
      return value.is_string() ? value.get<std::string>() : std::string();
    };
    if (key == "type") {
      has_type_ = true;
      if (value != "BPE")
        reject("{}: the model type {} is not one that qkscope knows; it reads BPE", where_,
               value.dump());
    } else if (key == "dropout") {
      if (!value.is_null() && value != 0.0) fail(key, "is set: ids would be random");
    } else if (key == "unk_token") {
      if (!value.is_null()) file_.unknown = text();
    } else if (key == "continuing_subword_prefix") {
      if (has_prefix_) fail(key, "is there twice");
      file_.continuing_prefix = text();
      if (file_.continuing_prefix.size() > kLongestPrefix)
        fail(key, fmt::format("has {} bytes; at most {} are read", file_.continuing_prefix.size(),
                              kLongestPrefix));
      has_prefix_ = true;
    } else if (key == "end_of_word_suffix") {
      if (!text().empty()) fail(key, "is set, which qkscope does not know");
    } else if (key == "fuse_unk") {
      file_.fuse_unknown = flag();
    } else if (key == "byte_fallback") {
      file_.byte_fallback = flag();
    } else if (key == "ignore_merges") {
      file_.ignore_merges = flag();
    } else {
      fail(key, "is not a key that qkscope knows");
    }
  }

  [[noreturn]] void fail(const std::string& key, const std::string& what) const {
    reject("{}: model.{} {}", where_, key, what);
  }

  void read_vocabulary() {
    if (has_vocabulary_) fail("vocab", "is there twice");
    has_vocabulary_ = true;
    std::string token;
    cursor_.enter_container('{');
    while (cursor_.next_member('}')) {
      token = cursor_.read_key();
      const std::int64_t id = cursor_.read_integer();
      if (id < 0 || id > Vocabulary::kMaxId)
        cursor_.fail(fmt::format("the token \"{}\" has the id {}; ids run from 0 to {}", token, id,
                                 Vocabulary::kMaxId));
      file_.vocabulary.add(token, static_cast<std::int32_t>(id));
    }
  }

  void read_merges() {
    cursor_.enter_container('[');
    while (cursor_.next_member(']')) {
      if (cursor_.peek() == '[') {
        cursor_.enter_container('[');
        if (!cursor_.next_member(']')) cursor_.fail("a merge must name two tokens");
        left_ = cursor_.read_string();
        if (!cursor_.next_member(']')) cursor_.fail("a merge must name two tokens");
        right_ = cursor_.read_string();
        if (cursor_.next_member(']')) cursor_.fail("a merge must name two tokens");
      } else {
        split_merge_pair(cursor_.read_string());
      }
      add_merge();
    }
  }

  void split_merge_pair(std::string_view pair) {
    if (pair.starts_with("#version")) {
      left_.clear();
      return;
    }
    const auto space = pair.find(' ');
    if (space == std::string_view::npos || pair.find(' ', space + 1) != std::string_view::npos)
      cursor_.fail(fmt::format("the merge \"{}\" must be two tokens with a space between", pair));
    left_ = pair.substr(0, space);
    right_ = pair.substr(space + 1);
  }

  void add_merge() {
    if (left_.empty()) return;
    const std::int32_t left = find_merge_token(left_), right = find_merge_token(right_);
    const std::string& prefix = file_.continuing_prefix;
    if (right_.size() < prefix.size())
      cursor_.fail(fmt::format("the merged token \"{}\" lacks the prefix \"{}\"", right_, prefix));
    left_.append(right_, prefix.size(), std::string::npos);
    file_.merges.push_back({left, right, find_merge_token(left_)});
  }

  std::int32_t find_merge_token(const std::string& token) const {
    const std::int32_t id = file_.vocabulary.find(token);
    if (id < 0) cursor_.fail(fmt::format("a merge names \"{}\", which is not in vocab", token));
    return id;
  }

  JsonCursor& cursor_;
  std::string where_;
  BpeModelSpec file_;
  bool has_type_ = false, has_vocabulary_ = false, has_merges_ = false, has_prefix_ = false;
  bool merges_late_ = false;  // parse them later, starting at merges_begin_
  std::size_t merges_begin_ = 0;
  std::string left_, right_;
};

namespace fs = std::filesystem;

AddedToken parse_added_token(const Json& json, const std::string& where) {
  const auto fail = [&](const std::string& what) {
    reject("{}: an added token {}: {}", where, what,
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
  reject("{}: truncation direction must be Left or Right", where);
}

void read_tokenizer_member(JsonCursor& cursor, const std::string& key, TokenizerFile& file) {
  if (key == "model") {
    file.model = BpeModelSpecReader(cursor, file.path).read();
    return;
  }
  Json value = parse_json(cursor.read_raw_value(), fmt::format("{}: {}", file.path, key));
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
    if (!value.is_array()) reject("{}: added_tokens must be a list", file.path);
    for (const Json& token : value)
      file.added_tokens.push_back(parse_added_token(token, file.path));
  } else if (key == "version") {
    if (value != "1.0") reject("{}: version is {}, expected \"1.0\"", file.path, value.dump());
  } else if (key != "padding") {  // padding is ignored
    reject("{}: unknown key \"{}\"", file.path, key);
  }
}

// Reads a special token, given as a string or as an object with "content".
std::string read_special_token(const Json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end()) return {};
  if (found->is_string()) return found->get<std::string>();
  if (found->is_object() && found->contains("content") && (*found)["content"].is_string())
    return (*found)["content"].get<std::string>();
  return {};
}

std::optional<bool> read_config_flag(const Json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end() || !found->is_boolean()) return std::nullopt;
  return found->get<bool>();
}

void read_config(const std::string& path, TokenizerFile& file) {
  if (!path_exists(path)) return;
  const Json config = load_json(path);
  if (!config.is_object()) reject("{}: expected a JSON object", path);
  file.add_bos = read_config_flag(config, "add_bos_token");
  file.add_eos = read_config_flag(config, "add_eos_token");
  file.bos = read_special_token(config, "bos_token");
  file.eos = read_special_token(config, "eos_token");
  if (const auto side = config.find("truncation_side"); side != config.end()) {
    if (*side != "left" && *side != "right")
      reject("{}: truncation_side must be \"left\" or \"right\"", path);
    file.truncates_left = *side == "left";
  }
  const auto tokens = config.find("added_tokens_decoder");
  if (tokens == config.end() || !tokens->is_object()) return;
  std::map<std::int64_t, AddedToken> by_id;
  for (const auto& [id, token] : tokens->items())
    by_id[parse_integer(id, path + ": added_tokens_decoder")] = parse_added_token(token, path);
  for (auto& [id, token] : by_id) file.config_tokens.push_back(std::move(token));
}

}  // namespace

TokenizerFile parse_tokenizer_json(std::string_view text, const std::string& path) {
  if (const auto at = find_invalid_utf8(text); at != std::string_view::npos)
    reject("{}: not UTF-8 at byte {}", path, at);
  TokenizerFile file;
  file.path = path;
  JsonCursor cursor(text, path);
  bool has_model = false;
  cursor.enter_container('{');
  while (cursor.next_member('}')) {
    const std::string key(cursor.read_key());
    has_model = has_model || key == "model";
    read_tokenizer_member(cursor, key, file);
  }
  cursor.expect_end();
  if (!has_model) reject("{}: has no \"model\", so it is no tokenizer.json", path);
  return file;
}

TokenizerFile read_tokenizer_file(const std::string& folder_or_file) {
  auto path = folder_or_file;
  if (is_folder(folder_or_file)) path = (fs::path(folder_or_file) / "tokenizer.json").string();
  if (path != folder_or_file && !path_exists(path))
    reject(
        "{}: there is no tokenizer.json in this folder; other kinds of tokenizer files are not "
        "read",
        folder_or_file);
  const MappedFile mapped(path);
  TokenizerFile file = parse_tokenizer_json(mapped.text(), path);
  read_config((fs::path(path).parent_path() / "tokenizer_config.json").string(), file);
  return file;
}

}  // namespace qkscope
