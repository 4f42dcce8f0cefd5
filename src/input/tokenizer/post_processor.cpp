#include "input/tokenizer/post_processor.h"

#include <algorithm>

#include "base/core/error.h"
#include "base/core/utf8.h"
#include "base/io/json.h"
#include "input/tokenizer/byte_alphabet.h"
#include "input/tokenizer/json_spec.h"
#include "input/tokenizer/unicode.h"
#include "input/tokenizer/vocabulary.h"

namespace qkscope {
namespace {

std::int32_t parse_id(const JsonSpec& spec, const Json& json) {
  if (!json.is_number_integer()) spec.fail("has an id that is no integer");
  const auto id = json.get<std::int64_t>();
  if (id < 0 || id > Vocabulary::kMaxId) spec.fail(fmt::format("has the id {}", id));
  return static_cast<std::int32_t>(id);
}

bool is_space(const char* at) {
  const char32_t code = utf8::decode(at).code;
  return code == byte_to_character(' ') || unicode::has(code, unicode::kSpace);
}

// Excludes leading and trailing white space of each token from its offsets.
void trim(PostProcessor::Tokens& tokens, bool prefix_space) {
  for (std::size_t i = 0; i < tokens.offsets.size(); ++i) {
    const std::string& text = tokens.strings[i];
    auto& [begin, end] = tokens.offsets[i];
    std::int64_t leading = 0, trailing = 0;
    for (auto at = text.data(); at < text.data() + text.size() && is_space(at); ++leading)
      at += utf8::length(*at);
    for (auto at = text.data() + text.size(); at > text.data(); ++trailing) {
      const auto size = utf8::decode_last(at).size;
      if (!is_space(at - size)) break;
      at -= size;
    }
    if (leading == 1 && prefix_space && (i == 0 || begin == 0)) leading = 0;
    begin = std::min(begin + leading, end);
    if (trailing > 0 && end >= trailing) end = std::max(end - trailing, begin);
  }
}

}  // namespace

PostProcessor::PostProcessor(const Json& spec, const std::string& where) {
  if (!spec.is_null()) read(spec, where);
}

PostProcessor PostProcessor::around(std::int32_t first, std::int32_t last) {
  Step step;
  if (first >= 0) step.pieces.push_back({false, {first}, {""}});
  step.pieces.push_back({true, {}, {}});
  if (last >= 0) step.pieces.push_back({false, {last}, {""}});
  PostProcessor made;
  made.steps_.push_back(std::move(step));
  return made;
}

void PostProcessor::read(const Json& json, const std::string& where) {
  const JsonSpec spec(json, "post_processor", where);
  const std::string& type = spec.type();
  Step step;
  if (type == "Sequence") {
    spec.allow({"processors"});
    for (const Json& part : spec.list("processors")) read(part, where);
    return;
  }
  const auto read_trimming = [&] {
    step.trim = spec.flag("trim_offsets");
    step.prefix_space = spec.flag("add_prefix_space");
  };
  if (type == "ByteLevel") {
    spec.allow({"add_prefix_space", "trim_offsets", "use_regex"});
    read_trimming();
  } else if (type == "RobertaProcessing") {
    spec.allow({"sep", "cls", "trim_offsets", "add_prefix_space"});
    read_trimming();
    const auto special = [&](const std::string& key) {
      const Json& pair = spec.list(key);
      if (pair.size() != 2 || !pair[0].is_string())
        spec.fail(fmt::format("\"{}\" must be [token, id]", key));
      return Piece{false, {parse_id(spec, pair[1])}, {pair[0].get<std::string>()}};
    };
    step.pieces = {special("cls"), Piece{true, {}, {}}, special("sep")};
  } else if (type == "TemplateProcessing") {
    step.pieces = read_template(spec);
  } else {
    spec.unknown_type();
  }
  steps_.push_back(std::move(step));
}

std::vector<PostProcessor::Piece> PostProcessor::read_template(const JsonSpec& spec) {
  spec.allow({"single", "pair", "special_tokens"});
  const Json& specials = spec.value("special_tokens");
  if (!specials.is_object()) spec.fail("\"special_tokens\" must be an object");
  std::vector<Piece> pieces;
  for (const Json& item : spec.list("single")) {
    const bool named = item.is_object() && item.size() == 1 && item.begin()->is_object() &&
                       item.begin()->contains("id") && (*item.begin())["id"].is_string();
    if (!named) spec.fail("\"single\" must list {\"Sequence\": ...} and {\"SpecialToken\": ...}");
    const auto name = (*item.begin())["id"].get<std::string>();
    if (item.begin().key() == "Sequence") {
      if (name != "A") spec.fail(fmt::format("\"single\" names the sequence {}", name));
      pieces.push_back({true, {}, {}});
      continue;
    }
    if (item.begin().key() != "SpecialToken")
      spec.fail(fmt::format("\"single\" has a piece \"{}\"", item.begin().key()));
    const auto special = specials.find(name);
    const bool whole = special != specials.end() && special->is_object() &&
                       special->contains("ids") && (*special)["ids"].is_array();
    if (!whole) spec.fail(fmt::format("does not say the ids of \"{}\"", name));
    Piece piece{false, {}, {}};
    for (const Json& id : (*special)["ids"]) {
      piece.ids.push_back(parse_id(spec, id));
      piece.strings.push_back(name);
    }
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

std::int64_t PostProcessor::added() const {
  std::int64_t count = 0;
  for (const Step& step : steps_) {
    for (const Piece& piece : step.pieces) count += std::ssize(piece.ids);
  }
  return count;
}

void PostProcessor::apply(Tokens& tokens, bool add_special) const {
  const bool offsets = !tokens.offsets.empty() || tokens.ids.empty();
  for (const Step& step : steps_) {
    if (step.trim) trim(tokens, step.prefix_space);
    if (step.pieces.empty()) continue;
    Tokens out;
    for (const Piece& piece : step.pieces) {
      const auto append = [](auto& to, const auto& from) {
        to.insert(to.end(), from.begin(), from.end());
      };
      if (piece.is_sequence) {
        append(out.ids, tokens.ids);
        append(out.offsets, tokens.offsets);
        append(out.strings, tokens.strings);
      } else if (add_special) {
        append(out.ids, piece.ids);
        if (!offsets) continue;
        out.offsets.resize(out.ids.size());
        append(out.strings, piece.strings);
      }
    }
    tokens = std::move(out);
  }
}

}  // namespace qkscope
