// qkscope tokenize: converts text to token ids and back.
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/error.h"
#include "cli/json.h"
#include "qkscope/experimental/store.h"
#include "qkscope/experimental/text.h"
#include "qkscope/experimental/threads.h"
#include "qkscope/hub.h"
#include "qkscope/tokenizer.h"

namespace qkscope::cli {
namespace {

struct TokenizeArguments {
  CommonOptions common;
  std::string tokenizer;
  std::optional<std::string> text;
  std::string text_file, jsonl;
  std::string errors = "strict";
  bool tokens = false, offsets = false, no_special = false, decode = false, json = false;
  std::int64_t max_tokens = 0;
};

std::string require_utf8(std::string text, const TokenizeArguments& options,
                         const std::string& where) {
  const auto at = find_invalid_utf8(text);
  if (at == std::string::npos) return text;
  if (options.errors == "replace") return replace_invalid_utf8(text);
  reject("{}: not UTF-8 at byte {}; '--errors replace' puts U+FFFD in such places", where, at);
}

Json to_json(const Tokenizer& tokenizer, const Tokenizer::Encoding& encoding,
             const TokenizeArguments& options) {
  Json out;
  out["ids"] = encoding.ids;
  if (options.tokens) {
    for (const std::int32_t id : encoding.ids) out["tokens"].push_back(tokenizer.token_string(id));
  }
  if (options.offsets) {
    for (const auto& [begin, end] : encoding.offsets) out["offsets"].push_back({begin, end});
  }
  if (options.max_tokens > 0) out["truncated"] = encoding.truncated;
  return out;
}

Tokenizer::Encoding encode(const Tokenizer& tokenizer, const std::string& text,
                           const TokenizeArguments& options) {
  return tokenizer.encode(text, {!options.no_special, options.max_tokens, options.offsets});
}

void print_encoding(const Tokenizer& tokenizer, const std::string& text,
                    const TokenizeArguments& options) {
  const auto encoding = encode(tokenizer, text, options);
  if (options.json) {
    fmt::print("{}\n", dump_json(to_json(tokenizer, encoding, options)));
    return;
  }
  if (!options.tokens && !options.offsets) {
    fmt::print("{}\n", fmt::join(encoding.ids, " "));
    return;
  }
  for (std::size_t i = 0; i < encoding.ids.size(); ++i) {
    fmt::print("{}", encoding.ids[i]);
    if (options.tokens) fmt::print("\t{}", tokenizer.token_string(encoding.ids[i]));
    if (options.offsets) {
      fmt::print("\t{}-{}", encoding.offsets[i].begin, encoding.offsets[i].end);
    }
    fmt::print("\n");
  }
}

std::vector<std::int32_t> parse_ids(const std::string& text, const std::string& where) {
  std::vector<std::int32_t> ids;
  for (std::size_t at = 0; (at = text.find_first_not_of(" \t\r\n,[]", at)) != std::string::npos;) {
    const std::size_t end = std::min(text.find_first_of(" \t\r\n,[]", at), text.size());
    const std::int64_t id = parse_integer(text.substr(at, end - at), where);
    if (id < 0 || id > std::numeric_limits<std::int32_t>::max()) {
      reject("{}: {} is not a token id", where, id);
    }
    ids.push_back(static_cast<std::int32_t>(id));
    at = end;
  }
  return ids;
}

void print_decoded(const Tokenizer& tokenizer, const std::string& text, const std::string& where,
                   const TokenizeArguments& options) {
  const std::string decoded = tokenizer.decode(parse_ids(text, where), options.no_special);
  fmt::print("{}\n", options.json ? dump_json(Json{{"text", decoded}}) : decoded);
}

// Converts one line of a JSON Lines file to one line of output.
std::string convert_line(const Tokenizer& tokenizer, const std::string& line,
                         const std::string& where, const TokenizeArguments& options) {
  const bool replace = options.errors == "replace";
  const Json object = parse_json(replace ? replace_invalid_utf8(line) : line, where);
  const char* const key = options.decode ? "ids" : "text";
  if (!object.is_object() || !object.contains(key)) {
    reject("{}: expected an object with \"{}\"", where, key);
  }
  if (!options.decode) {
    if (!object["text"].is_string()) reject("{}: \"text\" must be a string", where);
    const auto text = object["text"].get<std::string>();
    return dump_json(to_json(tokenizer, encode(tokenizer, text, options), options));
  }
  const std::string text =
      tokenizer.decode(parse_ids(object["ids"].dump(), where), options.no_special);
  return dump_json(Json{{"text", text}});
}

// Processes blocks of lines in parallel; the output keeps the order of the input.
void run_jsonl(const Tokenizer& tokenizer, const TokenizeArguments& options) {
  constexpr std::size_t kBlock = 256;
  std::ifstream file(options.jsonl, std::ios::binary);
  if (!file) reject("{}: cannot open: {}", options.jsonl, std::strerror(errno));
  std::vector<std::string> lines, answers;
  std::int64_t done = 0;
  for (bool more = true; more;) {
    lines.clear();
    for (std::string line; lines.size() < kBlock && (more = !!std::getline(file, line));) {
      lines.push_back(std::move(line));
    }
    answers.assign(lines.size(), {});
    parallel_for(std::ssize(lines), [&](std::int64_t i) {
      const auto at = static_cast<std::size_t>(i);
      const std::string where = fmt::format("{}: line {}", options.jsonl, done + i + 1);
      if (lines[at].find_first_not_of(" \t\r") == std::string::npos) return;
      answers[at] = convert_line(tokenizer, lines[at], where, options) + "\n";
    });
    for (const std::string& text : answers) fmt::print("{}", text);
    done += std::ssize(lines);
  }
}

void run(TokenizeArguments& options) {
  const FetchOptions fetch{.weights = false, .quiet = options.common.quiet};
  const Tokenizer tokenizer =
      Tokenizer::load(fetch_tokenizer(fetch_input(options.tokenizer, fetch), fetch));
  if (!options.jsonl.empty()) return run_jsonl(tokenizer, options);
  std::string text = options.text.value_or(""), where = "--text";
  if (!options.text_file.empty()) {
    where = options.text_file;
    text = read_text_file(options.text_file);
  } else if (!options.text) {
    where = "standard input";
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
  }
  if (options.decode) return print_decoded(tokenizer, text, where, options);
  print_encoding(tokenizer, require_utf8(std::move(text), options, where), options);
}

}  // namespace

void add_tokenize(CLI::App& app) {
  auto [command, options] =
      add_command<TokenizeArguments>(app, "tokenize", "Turn text into token ids, and back", run);
  command
      ->add_option(
          "--tokenizer", options->tokenizer,
          "A tokenizer.json, a GGUF file, a folder with one, or a model id of the Hugging Face Hub")
      ->required();
  auto* text =
      command->add_option("--text", options->text, "The text itself (default: standard input)");
  auto* file = command->add_option("--text-file", options->text_file,
                                   "A file with the text (default: none)");
  auto* jsonl = command->add_option("--jsonl", options->jsonl,
                                    "A JSON Lines file; each object has \"text\" (default: none)");
  text->excludes(file)->excludes(jsonl);
  file->excludes(jsonl);
  command
      ->add_option("--max-tokens", options->max_tokens,
                   "Cut to N ids, special tokens included (default: keep all)")
      ->check(positive());
  command->add_flag("--tokens", options->tokens, "Print each token's string");
  command->add_flag("--offsets", options->offsets, "Print the character range of each token");
  command->add_flag("--no-special", options->no_special,
                    "Add no special tokens; with --decode, omit them");
  command->add_flag("--decode", options->decode, "The input is token ids; print their text");
  command->add_flag("--json", options->json, "Print one JSON object");
  choices(command->add_option("--errors", options->errors,
                              "Bytes that are not UTF-8: an error (strict), or U+FFFD (replace)"),
          {"strict", "replace"})
      ->capture_default_str();
  command->footer("Without --text, --text-file and --jsonl the text is read from standard input.");
}

}  // namespace qkscope::cli
