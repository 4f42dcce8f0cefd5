#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <tuple>

#include <fmt/ranges.h>

#include "base/core/error.h"
#include "base/core/log.h"
#include "base/core/project.h"
#include "base/core/text.h"
#include "base/io/folder.h"
#include "base/io/mapped_file.h"
#include "input/checkpoint/gguf.h"
#include "input/tokenizer/tokenizer_components.h"
#include "input/tokenizer/tokenizer_file.h"
#include "input/tokenizer/unicode.h"

namespace qkscope {
namespace {

constexpr const char* kPre = "tokenizer.ggml.pre";
constexpr const char* kTokens = "tokenizer.ggml.tokens";
constexpr const char* kTypes = "tokenizer.ggml.token_type";
constexpr const char* kMerges = "tokenizer.ggml.merges";
constexpr const char* kScores = "tokenizer.ggml.scores";

enum TokenType : std::int64_t { kUnknown = 2, kControl = 3, kUserDefined = 4 };

// A pre-tokenizer defined in llama.cpp. GGUF files store only its name.
struct PreTokenizerSpec {
  const char* name;                          // value of tokenizer.ggml.pre
  std::array<const char*, 4> expressions{};  // applied in order; none: GPT-2's expression
  bool digits_alone = false;                 // split digits before the expressions apply
  bool nfc = false;                          // normalize the text to NFC
  bool ignore_merges = false;
  bool add_bos = false;  // default of add_bos_token
};

// Pre-tokenizer split regex of GPT-4o, also used by Phi-4-mini.
constexpr const char* kGpt4oExpression =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Pre-tokenizer that llama.cpp uses for models unknown to its converter.
constexpr PreTokenizerSpec kDefaultPreTokenizer = {
    .name = "default",
    .expressions = {R"([\p{P}\$\+<=>\^~\|]+)",
                    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))",
                    R"(\p{N}+)", "[0-9][0-9][0-9]"}};

constexpr PreTokenizerSpec llama3_pre_tokenizer(const char* name) {
  return {.name = name, .expressions = {kLlama3Expression}, .ignore_merges = true, .add_bos = true};
}

constexpr std::array kPreTokenizers = {
    PreTokenizerSpec{.name = "gpt-2"},
    PreTokenizerSpec{.name = "smollm", .digits_alone = true},
    PreTokenizerSpec{.name = "starcoder", .digits_alone = true},
    llama3_pre_tokenizer("llama-bpe"),
    llama3_pre_tokenizer("llama3"),
    llama3_pre_tokenizer("llama-v3"),
    PreTokenizerSpec{.name = "smaug-bpe", .expressions = {kLlama3Expression}},
    PreTokenizerSpec{.name = "dbrx", .expressions = {kLlama3Expression}},
    PreTokenizerSpec{.name = "qwen2", .expressions = {kQwen2Expression}, .nfc = true},
    PreTokenizerSpec{.name = "deepseek-r1-qwen", .expressions = {kQwen2Expression}, .nfc = true},
    PreTokenizerSpec{.name = "tekken",
                     .expressions = {kTekkenExpression},
                     .ignore_merges = true,
                     .add_bos = true},
    PreTokenizerSpec{.name = "gpt-4o", .expressions = {kGpt4oExpression}},
    kDefaultPreTokenizer,
};

const PreTokenizerSpec& find_pre_tokenizer(const GgufMetadata& metadata) {
  constexpr const char* kAdvice =
      "put the model's own tokenizer.json beside it and give the folder";
  if (!metadata.has(kPre))
    bad_input("{}: no {}, so that how text is cut into words is not known; {}",
              metadata.source_path(), quote_text(kPre), kAdvice);
  const auto name = metadata.text(kPre);
  for (const auto& spec : kPreTokenizers) {
    if (name != spec.name) continue;
    if (name == kDefaultPreTokenizer.name)
      log::warn(
          "{}: {} is {}, which stands for a pre-tokenizer that the converter did not know; ids are "
          "llama.cpp's and may not be the model's own: if you can, {}",
          metadata.source_path(), quote_text(kPre), quote_text(name), kAdvice);
    return spec;
  }
  bad_input("{}: the pre-tokenizer {} is not one that qkscope knows; it knows {}: {}",
            metadata.source_path(), quote_text(name),
            fmt::join(project(kPreTokenizers, &PreTokenizerSpec::name), ", "), kAdvice);
}

Json pre_tokenizer_json(const PreTokenizerSpec& spec) {
  Json stages = Json::array();
  if (spec.digits_alone) stages.push_back({{"type", "Digits"}, {"individual_digits", true}});
  for (const char* expression : spec.expressions)
    if (expression != nullptr)
      stages.push_back({{"type", "Split"},
                        {"pattern", {{"Regex", expression}}},
                        {"behavior", "Isolated"},
                        {"invert", false}});
  stages.push_back({{"type", "ByteLevel"},
                    {"add_prefix_space", false},
                    {"trim_offsets", true},
                    {"use_regex", spec.expressions.front() == nullptr}});
  return {{"type", "Sequence"}, {"pretokenizers", stages}};
}

Json make_replace_component(std::string_view from, std::string_view to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

class GgufTokenizerReader {
 public:
  explicit GgufTokenizerReader(const GgufMetadata& metadata) : metadata_(metadata) {}

  TokenizerFile read() {
    file_.path = metadata_.source_path();
    const auto kind = metadata_.text("tokenizer.ggml.model");
    if (kind != "gpt2" && kind != "llama")
      bad_input("{}: the tokenizer {} is not one that qkscope knows; it reads gpt2 and llama",
                metadata_.source_path(), quote_text(kind));
    read_tokens();
    const bool adds_bos = kind == "gpt2" ? read_byte_level() : read_sentencepiece();
    read_bos_eos(adds_bos);
    read_added_tokens();
    return std::move(file_);
  }

 private:
  // Tokens are stored in order of id. Gemma spells runs of spaces literally, others use U+2581.
  void read_tokens() {
    const bool gemma = metadata_.text("general.architecture", "").starts_with("gemma");
    for (const Json& token : metadata_.list(kTokens)) {
      if (!token.is_string()) metadata_.fail(kTokens, "a list of strings");
      auto text = token.get<std::string>();
      if (find_invalid_utf8(text) != std::string::npos)
        bad_input("{}: token {} is not UTF-8", metadata_.source_path(), tokens_.size());
      if (gemma && text.find_first_not_of(' ') == std::string::npos) {
        std::string marks;
        for (std::size_t i = 0; i < text.size(); ++i) marks += unicode::kSpaceMarkUtf8;
        text = marks;
      }
      tokens_.push_back(std::move(text));
    }
    if (std::ssize(tokens_) > Vocabulary::kMaxId)
      bad_input("{}: {} tokens, expected at most {}", metadata_.source_path(), tokens_.size(),
                Vocabulary::kMaxId);
    for (std::size_t id = 0; id < tokens_.size(); ++id)
      file_.model.vocabulary.add(tokens_[id], static_cast<std::int32_t>(id));
  }

  // Reads a byte-level BPE tokenizer. Returns the default value of add_bos_token.
  bool read_byte_level() {
    const auto& spec = find_pre_tokenizer(metadata_);
    for (const Json& merge : metadata_.list(kMerges)) add_merge(merge);
    file_.model.ignore_merges = spec.ignore_merges;
    if (spec.nfc) file_.normalizer = {{"type", "NFC"}};
    file_.pre_tokenizer = pre_tokenizer_json(spec);
    file_.decoder = {{"type", "ByteLevel"},
                     {"add_prefix_space", true},
                     {"trim_offsets", true},
                     {"use_regex", true}};
    return spec.add_bos;
  }

  void add_merge(const Json& merge) {
    if (!merge.is_string()) metadata_.fail(kMerges, "a list of strings");
    const auto& text = merge.get_ref<const std::string&>();
    const auto space = text.find(' ', 1);
    const auto left = std::string_view(text).substr(0, space);
    const auto right = space < text.size() ? std::string_view(text).substr(space + 1) : "";
    const auto find = [&](const std::string& token) {
      const auto id = file_.model.vocabulary.find(token);
      if (id < 0 || right.empty())
        bad_input("{}: the merge {} is not two tokens with a space between that make a third",
                  metadata_.source_path(), quote_text(text));
      return id;
    };
    const std::string both = std::string(left) + std::string(right);
    file_.model.merges.push_back({find(std::string(left)), find(std::string(right)), find(both)});
  }

  // Reads a SentencePiece tokenizer. Returns the default value of add_bos_token.
  bool read_sentencepiece() {
    const bool prefixed = metadata_.flag("tokenizer.ggml.add_space_prefix", true);
    Json steps = Json::array();
    if (prefixed) steps.push_back({{"type", "Prepend"}, {"prepend", unicode::kSpaceMarkUtf8}});
    steps.push_back(make_replace_component(" ", unicode::kSpaceMarkUtf8));
    file_.normalizer = {{"type", "Sequence"}, {"normalizers", steps}};
    Json decoders = {make_replace_component(unicode::kSpaceMarkUtf8, " "),
                     {{"type", "ByteFallback"}},
                     {{"type", "Fuse"}}};
    if (prefixed)
      decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    file_.decoder = {{"type", "Sequence"}, {"decoders", decoders}};
    file_.model.byte_fallback = true;
    file_.model.fuse_unknown = true;
    if (const auto id = special_id("tokenizer.ggml.unknown_token_id"); id >= 0)
      file_.model.unknown = tokens_[static_cast<std::size_t>(id)];
    derive_merges();
    return true;
  }

  struct MergeCandidate {
    double score;
    std::size_t left_length, right_length;  // lengths in characters
    BpeModelSpec::BpeMerge merge;
  };

  // SentencePiece merges the adjacent pair that forms the token with the highest score. The
  // equivalent merge list contains every split of every token, ordered by score. Gemma's tokens are
  // ordered by id instead, because their scores do not follow the training order.
  void derive_merges() {
    const bool by_id = metadata_.text("general.architecture", "").starts_with("gemma");
    if (!by_id && metadata_.list(kScores).size() != tokens_.size())
      bad_input("{}: {} scores for {} tokens", metadata_.source_path(),
                metadata_.list(kScores).size(), tokens_.size());
    std::vector<MergeCandidate> all;
    for (std::size_t id = 0; id < tokens_.size(); ++id) {
      const Json score = by_id ? Json(-static_cast<double>(id)) : metadata_.list(kScores)[id];
      if (!score.is_number()) metadata_.fail(kScores, "a list of numbers");
      auto splits = splits_of(id, score.get<double>());
      std::ranges::sort(splits, {}, [](const MergeCandidate& split) {
        return std::pair(split.merge.left, split.merge.right);
      });
      all.insert(all.end(), splits.begin(), splits.end());
    }
    std::ranges::stable_sort(all, std::greater<>(), [](const MergeCandidate& split) {
      return std::tuple(split.score, split.left_length, split.right_length);
    });
    for (const auto& candidate : all) file_.model.merges.push_back(candidate.merge);
  }

  // Returns all splits of a token into two other tokens at a character boundary.
  std::vector<MergeCandidate> splits_of(std::size_t id, double score) const {
    constexpr std::size_t kLongest = 1024;  // bytes; published tokens have fewer than 100
    const std::string_view token = tokens_[id];
    if (token.size() > kLongest)
      bad_input("{}: a token of {} bytes, expected at most {}", metadata_.source_path(),
                token.size(), kLongest);
    const auto length = utf8::count_characters(token);
    std::vector<MergeCandidate> splits;
    std::size_t before = 0;  // characters left of the split
    for (std::size_t at = 1; at < token.size(); ++at) {
      if (utf8::is_continuation_byte(token[at])) continue;
      ++before;
      const auto left = file_.model.vocabulary.find(token.substr(0, at));
      const auto right = left < 0 ? -1 : file_.model.vocabulary.find(token.substr(at));
      if (right < 0) continue;
      splits.push_back(
          {score, before, length - before, {left, right, static_cast<std::int32_t>(id)}});
    }
    return splits;
  }

  // Returns the token id stored under a metadata key, or -1 if the key is absent.
  std::int64_t special_id(const std::string& key) const {
    if (!metadata_.has(key)) return -1;
    const auto id = metadata_.natural_number(key);
    if (id >= std::ssize(tokens_))
      metadata_.fail(key, fmt::format("the id of one of {} tokens", tokens_.size()));
    return id;
  }

  void read_bos_eos(bool adds_bos) {
    const auto token = [&](const char* key) {
      const auto id = special_id(key);
      return id < 0 ? std::string() : tokens_[static_cast<std::size_t>(id)];
    };
    file_.bos = token("tokenizer.ggml.bos_token_id");
    file_.eos = token("tokenizer.ggml.eos_token_id");
    file_.add_bos = metadata_.flag("tokenizer.ggml.add_bos_token", adds_bos);
    file_.add_eos = metadata_.flag("tokenizer.ggml.add_eos_token", false);
  }

  void read_added_tokens() {
    if (!metadata_.has(kTypes)) return;
    const Json& types = metadata_.list(kTypes);
    if (types.size() != tokens_.size())
      bad_input("{}: {} types for {} tokens", metadata_.source_path(), types.size(),
                tokens_.size());
    for (std::size_t id = 0; id < tokens_.size(); ++id) {
      if (!types[id].is_number_integer()) metadata_.fail(kTypes, "a list of integers");
      const auto type = types[id].get<std::int64_t>();
      const bool special = type == kControl || type == kUnknown;
      if ((special || type == kUserDefined) && !tokens_[id].empty())
        file_.added_tokens.push_back({.content = tokens_[id], .special = special});
    }
  }

  const GgufMetadata& metadata_;
  TokenizerFile file_;
  std::vector<std::string> tokens_;
};

}  // namespace

std::string find_tokenizer_gguf(const std::string& folder_or_file) {
  const auto own = std::filesystem::path(folder_or_file) / "tokenizer.json";
  return path_exists(own.string()) ? "" : find_gguf(folder_or_file);
}

TokenizerFile parse_gguf_tokenizer(const GgufMetadata& metadata) {
  return GgufTokenizerReader(metadata).read();
}

TokenizerFile read_gguf_tokenizer(const std::string& path) {
  const MappedFile file(path);
  const auto header = parse_gguf(file.bytes(), path);
  return parse_gguf_tokenizer({header, path});
}

std::vector<std::int32_t> gguf_end_tokens(const std::string& path) {
  const MappedFile file(path);
  const auto header = parse_gguf(file.bytes(), path);
  const GgufMetadata metadata(header, path);
  std::vector<std::int32_t> ids;
  for (const char* name : {"eos", "eot", "eom"}) {
    const auto key = fmt::format("tokenizer.ggml.{}_token_id", name);
    if (!metadata.has(key)) continue;
    const auto id = metadata.natural_number(key);
    if (id > INT32_MAX) metadata.fail(key, "a token id");
    if (std::ranges::find(ids, id) == ids.end()) ids.push_back(static_cast<std::int32_t>(id));
  }
  return ids;
}

}  // namespace qkscope
