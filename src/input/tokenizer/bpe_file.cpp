#include "base/core/error.h"
#include "base/io/json.h"
#include "input/tokenizer/tokenizer_file.h"

namespace qkscope {
namespace {

// Limit of continuing_subword_prefix in bytes: with byte fallback, a character may become this many
// tokens.
constexpr std::size_t kLongestPrefix = 64;

class BpeFileReader {
 public:
  BpeFileReader(JsonCursor& cursor, std::string where)
      : cursor_(cursor), where_(std::move(where)) {}

  BpeFile read() {
    cursor_.enter('{');
    while (cursor_.next('}')) read_member(std::string(cursor_.key()));
    if (!has_type_ && !has_merges_)
      bad_input("{}: the model has neither a type nor merges; only BPE models are read", where_);
    if (!has_vocabulary_ || !has_merges_)
      bad_input("{}: the BPE model needs \"vocab\" and \"merges\"", where_);
    if (merges_late_) {
      const std::size_t end = cursor_.position();
      cursor_.jump(merges_begin_);
      read_merges();
      cursor_.jump(end);
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
      // Merges refer to the vocabulary and the prefix, which may come later in the file.
      if (has_vocabulary_ && has_prefix_) return read_merges();
      merges_late_ = true;
      cursor_.skip();
      return;
    }
    read_setting(key, parse_json(cursor_.skip(), fmt::format("{}: model.{}", where_, key)));
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
        bad_input("{}: the model type {} is not one that qkscope knows; it reads BPE", where_,
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
    bad_input("{}: model.{} {}", where_, key, what);
  }

  void read_vocabulary() {
    if (has_vocabulary_) fail("vocab", "is there twice");
    has_vocabulary_ = true;
    std::string token;
    cursor_.enter('{');
    while (cursor_.next('}')) {
      token = cursor_.key();
      const std::int64_t id = cursor_.integer();
      if (id < 0 || id > Vocabulary::kMaxId)
        cursor_.fail(fmt::format("the token \"{}\" has the id {}; ids run from 0 to {}", token, id,
                                 Vocabulary::kMaxId));
      file_.vocabulary.add(token, static_cast<std::int32_t>(id));
    }
  }

  void read_merges() {
    cursor_.enter('[');
    while (cursor_.next(']')) {
      if (cursor_.peek() == '[') {
        cursor_.enter('[');
        if (!cursor_.next(']')) cursor_.fail("a merge must name two tokens");
        left_ = cursor_.string();
        if (!cursor_.next(']')) cursor_.fail("a merge must name two tokens");
        right_ = cursor_.string();
        if (cursor_.next(']')) cursor_.fail("a merge must name two tokens");
      } else {
        split_pair(cursor_.string());
      }
      add_merge();
    }
  }

  void split_pair(std::string_view pair) {
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
    const std::int32_t left = find(left_), right = find(right_);
    const std::string& prefix = file_.continuing_prefix;
    if (right_.size() < prefix.size())
      cursor_.fail(fmt::format("the merged token \"{}\" lacks the prefix \"{}\"", right_, prefix));
    left_.append(right_, prefix.size(), std::string::npos);
    file_.merges.push_back({left, right, find(left_)});
  }

  std::int32_t find(const std::string& token) const {
    const std::int32_t id = file_.vocabulary.find(token);
    if (id < 0) cursor_.fail(fmt::format("a merge names \"{}\", which is not in vocab", token));
    return id;
  }

  JsonCursor& cursor_;
  std::string where_;
  BpeFile file_;
  bool has_type_ = false, has_vocabulary_ = false, has_merges_ = false, has_prefix_ = false;
  bool merges_late_ = false;  // parse them later, starting at merges_begin_
  std::size_t merges_begin_ = 0;
  std::string left_, right_;
};

}  // namespace

BpeFile read_bpe_file(JsonCursor& cursor, const std::string& where) {
  return BpeFileReader(cursor, where).read();
}

}  // namespace qkscope
