#include <algorithm>
#include <optional>

#include <fmt/ranges.h>

#include "base/core/text.h"
#include "base/io/json.h"
#include "input/tokenizer/tokenizer_components.h"
#include "input/tokenizer/tokenizer_file.h"
#include "input/tokenizer/unicode.h"

namespace qkscope {
namespace {

std::int32_t parse_token_id(const TokenizerComponentSpec& spec, const Json& json) {
  if (!json.is_number_integer()) spec.fail("has an id that is no integer");
  const auto id = json.get<std::int64_t>();
  if (id < 0 || id > Vocabulary::kMaxId) spec.fail(fmt::format("has the id {}", id));
  return static_cast<std::int32_t>(id);
}

bool starts_with_white_space(const char* at) {
  const char32_t code = utf8::decode_character(at).code;
  return code == byte_alphabet_char(' ') || unicode::has_character_property(code, unicode::kSpace);
}

// Excludes leading and trailing white space of each token from its offsets.
void trim_offsets(EncodedTokens& tokens, bool prefix_space) {
  for (std::size_t i = 0; i < tokens.offsets.size(); ++i) {
    const std::string& text = tokens.strings[i];
    auto& [begin, end] = tokens.offsets[i];
    std::int64_t leading = 0, trailing = 0;
    for (auto at = text.data(); at < text.data() + text.size() && starts_with_white_space(at);
         ++leading)
      at += utf8::character_size(*at);
    for (auto at = text.data() + text.size(); at > text.data(); ++trailing) {
      const auto size = utf8::decode_last_character(at).size;
      if (!starts_with_white_space(at - size)) break;
      at -= size;
    }
    if (leading == 1 && prefix_space && (i == 0 || begin == 0)) leading = 0;
    begin = std::min(begin + leading, end);
    if (trailing > 0 && end >= trailing) end = std::max(end - trailing, begin);
  }
}

using TokenStrings = std::vector<std::string>;
using DecoderStep = std::function<void(TokenStrings&)>;

void decode_bytes(TokenStrings& tokens) {
  std::string bytes, of_token;
  for (const std::string& token : tokens)
    bytes += decode_byte_alphabet(token, of_token) ? of_token : token;
  tokens.assign(1, replace_invalid_utf8(bytes));
}

// Parses a byte-fallback token: "<0x61>" is the byte 0x61.
std::optional<char> parse_fallback_byte(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
  const auto byte = parse_number<unsigned>(std::string_view(token).substr(3, 2), 16);
  return byte ? std::optional(static_cast<char>(*byte)) : std::nullopt;
}

void decode_byte_fallback_tokens(TokenStrings& tokens) {
  TokenStrings out;
  std::string bytes;
  const auto settle = [&] {
    if (find_invalid_utf8(bytes) == std::string::npos) {
      if (!bytes.empty()) out.push_back(bytes);
    } else {
      out.insert(out.end(), bytes.size(), utf8::encode_code_point(0xFFFD));
    }
    bytes.clear();
  };
  for (std::string& token : tokens) {
    if (const auto byte = parse_fallback_byte(token)) {
      bytes.push_back(*byte);
      continue;
    }
    settle();
    out.push_back(std::move(token));
  }
  settle();
  tokens = std::move(out);
}

// Removes up to `front` leading and up to `back` trailing copies of `content`.
void strip_copies(std::string& token, const std::string& content, std::int64_t front,
                  std::int64_t back) {
  for (; front > 0 && token.starts_with(content); --front) token.erase(0, content.size());
  for (; back > 0 && token.ends_with(content); --back) token.erase(token.size() - content.size());
}

std::string replace_matches(const SearchPattern& pattern, const std::string& content,
                            const std::string& token) {
  std::vector<MatchOrGap> matches;
  pattern.find(token, matches);
  std::string out;
  for (const auto& [range, matched] : matches)
    out += matched ? content : token.substr(range.begin, range.end - range.begin);
  return out;
}

void add_decoder_steps(const Json& json, const std::string& where,
                       std::vector<DecoderStep>& steps) {
  const TokenizerComponentSpec spec(json, "decoder", where);
  if (spec.has_type("Sequence", {"decoders"})) {
    for (const Json& part : spec.list("decoders")) add_decoder_steps(part, where, steps);
  } else if (spec.is_byte_level()) {
    steps.push_back(decode_bytes);
  } else if (spec.has_type("ByteFallback")) {
    steps.push_back(decode_byte_fallback_tokens);
  } else if (spec.has_type("Fuse")) {
    steps.push_back(
        [](TokenStrings& tokens) { tokens.assign(1, fmt::format("{}", fmt::join(tokens, ""))); });
  } else if (spec.has_type("Strip", {"content", "start", "stop"})) {
    const std::string content = spec.character("content");
    steps.push_back(
        [=, start = spec.integer("start"), stop = spec.integer("stop")](TokenStrings& tokens) {
          for (std::string& token : tokens) strip_copies(token, content, start, stop);
        });
  } else if (spec.has_type("Replace", {"pattern", "content"})) {
    steps.push_back(
        [pattern = spec.read_pattern(), content = spec.text("content")](TokenStrings& tokens) {
          for (std::string& token : tokens) token = replace_matches(pattern, content, token);
        });
  } else if (spec.is_metaspace()) {
    const std::string mark = spec.character("replacement");
    const bool prepended =
        spec.text("prepend_scheme", "always") != "never" && spec.flag("add_prefix_space", true);
    // Metaspace decoder: replaces marks with spaces, or removes them from the first token if a mark
    // was prepended.
    steps.push_back([=, pattern = make_string_pattern(mark)](TokenStrings& tokens) {
      for (std::size_t i = 0; i < tokens.size(); ++i)
        tokens[i] = replace_matches(pattern, i == 0 && prepended ? "" : " ", tokens[i]);
    });
  } else {
    spec.fail_unknown_type();
  }
}

}  // namespace

PostProcessor PostProcessor::make_bos_eos_processor(std::int32_t first, std::int32_t last) {
  PostProcessorStep step;
  if (first >= 0) step.pieces.push_back({false, {first}, ""});
  step.pieces.push_back({true, {}, ""});
  if (last >= 0) step.pieces.push_back({false, {last}, ""});
  PostProcessor made;
  made.steps_.push_back(std::move(step));
  return made;
}

void PostProcessor::add_processor_steps(const Json& json, const std::string& where) {
  const TokenizerComponentSpec spec(json, "post_processor", where);
  PostProcessorStep step;
  if (spec.has_type("Sequence", {"processors"})) {
    for (const Json& part : spec.list("processors")) add_processor_steps(part, where);
    return;
  }
  const auto read_trimming = [&] {
    step.trim = spec.flag("trim_offsets");
    step.prefix_space = spec.flag("add_prefix_space");
  };
  if (spec.is_byte_level()) {
    read_trimming();
  } else if (spec.has_type("RobertaProcessing",
                           {"sep", "cls", "trim_offsets", "add_prefix_space"})) {
    read_trimming();
    const auto special = [&](const std::string& key) {
      const Json& pair = spec.list(key);
      if (pair.size() != 2 || !pair[0].is_string())
        spec.fail(fmt::format("\"{}\" must be [token, id]", key));
      return TemplatePiece{false, {parse_token_id(spec, pair[1])}, pair[0].get<std::string>()};
    };
    step.pieces = {special("cls"), TemplatePiece{true, {}, ""}, special("sep")};
  } else if (spec.has_type("TemplateProcessing", {"single", "pair", "special_tokens"})) {
    step.pieces = read_template(spec);
  } else {
    spec.fail_unknown_type();
  }
  steps_.push_back(std::move(step));
}

std::vector<PostProcessor::TemplatePiece> PostProcessor::read_template(
    const TokenizerComponentSpec& spec) {
  const Json& specials = spec.value("special_tokens");
  if (!specials.is_object()) spec.fail("\"special_tokens\" must be an object");
  std::vector<TemplatePiece> pieces;
  for (const Json& item : spec.list("single")) {
    const bool named = item.is_object() && item.size() == 1 && item.begin()->is_object() &&
                       item.begin()->contains("id") && (*item.begin())["id"].is_string();
    if (!named) spec.fail("\"single\" must list {\"Sequence\": ...} and {\"SpecialToken\": ...}");
    const auto name = (*item.begin())["id"].get<std::string>();
    if (item.begin().key() == "Sequence") {
      if (name != "A") spec.fail(fmt::format("\"single\" names the sequence {}", name));
      pieces.push_back({true, {}, ""});
      continue;
    }
    if (item.begin().key() != "SpecialToken")
      spec.fail(fmt::format("\"single\" has a piece \"{}\"", item.begin().key()));
    const auto special = specials.find(name);
    const bool whole = special != specials.end() && special->is_object() &&
                       special->contains("ids") && (*special)["ids"].is_array();
    if (!whole) spec.fail(fmt::format("does not say the ids of \"{}\"", name));
    auto& piece = pieces.emplace_back(TemplatePiece{false, {}, name});
    for (const Json& id : (*special)["ids"]) piece.ids.push_back(parse_token_id(spec, id));
  }
  return pieces;
}

std::int64_t PostProcessor::added_special_token_count() const {
  std::int64_t count = 0;
  for (const PostProcessorStep& step : steps_)
    for (const TemplatePiece& piece : step.pieces) count += std::ssize(piece.ids);
  return count;
}

void PostProcessor::apply(EncodedTokens& tokens, bool add_special) const {
  const bool offsets = !tokens.offsets.empty() || tokens.ids.empty();
  for (const PostProcessorStep& step : steps_) {
    if (step.trim) trim_offsets(tokens, step.prefix_space);
    if (step.pieces.empty()) continue;
    EncodedTokens out;
    for (const TemplatePiece& piece : step.pieces) {
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
        out.strings.insert(out.strings.end(), piece.ids.size(), piece.string);
      }
    }
    tokens = std::move(out);
  }
}

Decoder make_decoder(const Json& spec, const std::string& where) {
  std::vector<DecoderStep> steps;
  if (!spec.is_null()) add_decoder_steps(spec, where, steps);
  return [steps, separator = spec.is_null() ? " " : ""](TokenStrings tokens) {
    for (const auto& step : steps) step(tokens);
    return fmt::format("{}", fmt::join(tokens, separator));
  };
}

}  // namespace qkscope
