#include "input/tokenizer/decoder.h"

#include <charconv>
#include <optional>

#include <fmt/ranges.h>

#include "base/core/error.h"
#include "base/core/utf8.h"
#include "base/io/json.h"
#include "input/tokenizer/byte_alphabet.h"
#include "input/tokenizer/json_spec.h"

namespace qkscope {
namespace {

using Tokens = std::vector<std::string>;

void decode_bytes(Tokens& tokens) {
  std::string bytes, of_token;
  for (const std::string& token : tokens)
    bytes += from_byte_alphabet(token, of_token) ? of_token : token;
  tokens.assign(1, replace_invalid_utf8(bytes));
}

// Parses a byte-fallback token: "<0x61>" is the byte 0x61.
std::optional<char> fallback_byte(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
  unsigned byte = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  if (error != std::errc() || end != token.data() + 5) return std::nullopt;
  return static_cast<char>(byte);
}

void decode_fallback(Tokens& tokens) {
  Tokens out;
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
    if (const auto byte = fallback_byte(token)) {
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
void strip(std::string& token, const std::string& content, std::int64_t front, std::int64_t back) {
  for (; front > 0 && token.starts_with(content); --front) token.erase(0, content.size());
  for (; back > 0 && token.ends_with(content); --back) token.erase(token.size() - content.size());
}

std::string replaced(const Pattern& pattern, const std::string& content, const std::string& token) {
  std::vector<Match> matches;
  pattern.find(token, matches);
  std::string out;
  for (const auto& [range, matched] : matches)
    out += matched ? content : token.substr(range.begin, range.end - range.begin);
  return out;
}

// Replaces the mark by a space, or by nothing in the first token if the encoder prepended one.
void decode_metaspace(Tokens& tokens, const std::string& mark, bool prepended) {
  const Pattern pattern = make_string_pattern(mark);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = replaced(pattern, i == 0 && prepended ? "" : " ", tokens[i]);
}

}  // namespace

Decoder::Decoder(const Json& spec, const std::string& where) : present_(!spec.is_null()) {
  if (present_) read(spec, where);
}

void Decoder::read(const Json& json, const std::string& where) {
  const JsonSpec spec(json, "decoder", where);
  const std::string& type = spec.type();
  if (type == "Sequence") {
    spec.allow({"decoders"});
    for (const Json& part : spec.list("decoders")) read(part, where);
  } else if (type == "ByteLevel") {
    spec.allow({"add_prefix_space", "trim_offsets", "use_regex"});
    steps_.push_back(decode_bytes);
  } else if (type == "ByteFallback") {
    spec.allow({});
    steps_.push_back(decode_fallback);
  } else if (type == "Fuse") {
    spec.allow({});
    steps_.push_back(
        [](Tokens& tokens) { tokens.assign(1, fmt::format("{}", fmt::join(tokens, ""))); });
  } else if (type == "Strip") {
    spec.allow({"content", "start", "stop"});
    const std::string content = spec.text("content");
    if (utf8::count_characters(content) != 1) spec.fail("\"content\" must be one character");
    steps_.push_back(
        [=, start = spec.integer("start"), stop = spec.integer("stop")](Tokens& tokens) {
          for (std::string& token : tokens) strip(token, content, start, stop);
        });
  } else if (type == "Replace") {
    spec.allow({"pattern", "content"});
    steps_.push_back([pattern = spec.pattern(), content = spec.text("content")](Tokens& tokens) {
      for (std::string& token : tokens) token = replaced(pattern, content, token);
    });
  } else if (type == "Metaspace") {
    spec.allow({"replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
    const std::string mark = spec.text("replacement");
    if (utf8::count_characters(mark) != 1) spec.fail("\"replacement\" must be one character");
    const bool prepended =
        spec.text("prepend_scheme", "always") != "never" && spec.flag("add_prefix_space", true);
    steps_.push_back([=](Tokens& tokens) { decode_metaspace(tokens, mark, prepended); });
  } else {
    spec.unknown_type();
  }
}

std::string Decoder::decode(std::vector<std::string> tokens) const {
  for (const Step& step : steps_) step(tokens);
  return fmt::format("{}", fmt::join(tokens, present_ ? "" : " "));
}

}  // namespace qkscope
