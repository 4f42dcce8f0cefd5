#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <tuple>

#include <fmt/ranges.h>

#include "base/core/error.h"
#include "base/core/log.h"
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

// A pre-tokenizer with the names that llama.cpp gives it; GGUF files store only a name. Where the
// model's tokenizer.json differs from llama.cpp, expressions and flags are those of tokenizer.json.
struct PreTokenizerSpec {
  std::array<std::string_view, 8> names;     // values of tokenizer.ggml.pre, then empty strings
  std::array<const char*, 6> expressions{};  // applied in order; none: GPT-2's expression
  bool digits_alone = false;                 // split digits before the expressions apply
  bool nfc = false;                          // normalize the text to NFC
  bool ignore_merges = false;
  bool add_bos = false;  // default of add_bos_token
};

// Pre-tokenizer split regex of GPT-4o, gpt-oss and Phi-4-mini.
constexpr const char* kGpt4oExpression =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen35Expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kSeedCoderExpression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kDeepSeekV3Expression =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Word expression in DeepSeek LLM's tokenizer.json, which lists most cased letters of Unicode 11.
constexpr const char* kDeepSeekLlmLetters =
    R"(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)";
constexpr const char* kDeepSeekIdeographs =
    R"([\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+)";
// Kimi's pre-tokenizer excludes Han characters from words. \p{Han} includes punctuation since PCRE2
// 10.40 (script extensions), so the expression lists the characters of the script.
constexpr const char* kKimiExpression =
    R"((?(DEFINE)(?<han>[\x{2E80}-\x{2E99}\x{2E9B}-\x{2EF3}\x{2F00}-\x{2FD5}\x{3005}\x{3007}\x{3021}-\x{3029}\x{3038}-\x{303B}\x{3400}-\x{4DBF}\x{4E00}-\x{9FFF}\x{F900}-\x{FA6D}\x{FA70}-\x{FAD9}\x{16FE2}\x{16FE3}\x{16FF0}\x{16FF1}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B739}\x{2B740}-\x{2B81D}\x{2B820}-\x{2CEA1}\x{2CEB0}-\x{2EBE0}\x{2EBF0}-\x{2EE5D}\x{2F800}-\x{2FA1D}\x{30000}-\x{3134A}\x{31350}-\x{323AF}])(?<upper>(?!(?&han))[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])(?<lower>(?!(?&han))[\p{Ll}\p{Lm}\p{Lo}\p{M}]))(?&han)+|[^\r\n\p{L}\p{N}]?(?&upper)*(?&lower)+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?(?&upper)+(?&lower)*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Runs of Chinese, Japanese, Korean and Southeast Asian characters in Trinity's pre-tokenizer.
constexpr const char* kTrinityScripts =
    R"([\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{8C48}-\x{FAFF}\x{3040}-\x{30FF}\x{FF65}-\x{FF9F}\x{2F00}-\x{2FDF}\x{E40}-\x{EFF}\x{1780}-\x{17FF}\x{1000}-\x{109F}\x{AA60}-\x{AA7F}\x{A9E0}-\x{A9FF}\x{AC00}-\x{D7AF}\x{1100}-\x{11FF}]+)";

constexpr PreTokenizerSpec kPreTokenizers[] = {
    {.names = {"gpt-2", "exaone4", "granite-docling", "trillion", "mellum", "gigachat", "a.x-4.0"}},
    {.names = {"olmo", "mpt"}, .nfc = true},
    {.names = {"smollm", "starcoder", "refact", "minerva-7b"}, .digits_alone = true},
    {.names = {"command-r"}, .digits_alone = true, .nfc = true},
    {.names = {"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "lfm2",
               "midm-2.0"},
     .expressions = {kLlama3Expression},
     .ignore_merges = true,
     .add_bos = true},
    {.names = {"glm4", "chatglm-bpe"}, .expressions = {kLlama3Expression}, .ignore_merges = true},
    {.names = {"smaug-bpe", "dbrx"}, .expressions = {kLlama3Expression}},
    {.names = {"qwen2", "deepseek-r1-qwen"}, .expressions = {kQwen2Expression}, .nfc = true},
    {.names = {"qwen35"}, .expressions = {kQwen35Expression}, .nfc = true},
    {.names = {"megrez"}, .expressions = {kQwen2Expression}},
    {.names = {"seed-coder"}, .expressions = {kSeedCoderExpression}},
    {.names = {"tekken"},
     .expressions = {kTekkenExpression},
     .ignore_merges = true,
     .add_bos = true},
    {.names = {"gpt-4o", "llama4"}, .expressions = {kGpt4oExpression}, .ignore_merges = true},
    {.names = {"minimax-m2", "kanana2"}, .expressions = {kGpt4oExpression}},
    // Tiny Aya's first expression splits numbers into groups of three digits from the right, in
    // linear time: only the first group of a number looks ahead. Numbers followed by a letter are
    // left to kGpt4oExpression, which splits them from the left.
    {.names = {"tiny_aya"},
     .expressions = {R"((?<!\d)\d{1,3}(?=(?:\d{3})*+(?!\w))|\G(?<=\d)\d{3})", kGpt4oExpression}},
    {.names = {"kimi-k2"}, .expressions = {kKimiExpression}, .ignore_merges = true},
    {.names = {"deepseek-llm"},
     .expressions =
         {R"([\r\n])", kDeepSeekLlmLetters,
          R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)",
          R"(\s+$)", kDeepSeekIdeographs, R"(\p{N})"}},
    {.names = {"deepseek-coder"},
     .expressions = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kDeepSeekIdeographs, R"(\p{N})"}},
    {.names = {"deepseek-v3", "joyai-llm", "hunyuan-dense"},
     .expressions = {R"(\p{N}{1,3})", R"([\x{4E00}-\x{9FA5}\x{3040}-\x{30FF}]+)",
                     kDeepSeekV3Expression}},
    {.names = {"afmoe"},
     .expressions = {R"((?<!\p{N})\p{N}{1,2}(?=(?:\p{N}{3})*+(?!\p{N}))|\p{N}{3})", kTrinityScripts,
                     kDeepSeekV3Expression}},
    {.names = {"superbpe"}, .expressions = {R"(\p{N}+)", R"((?=(\d{3})+(?!\d)))"}},
    // The pre-tokenizer that llama.cpp uses for models unknown to its converter.
    {.names = {"default"},
     .expressions = {R"([\p{P}\$\+<=>\^~\|]+)",
                     R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))",
                     R"(\p{N}+)", "[0-9][0-9][0-9]"}},
};

const PreTokenizerSpec& find_pre_tokenizer(const GgufMetadata& metadata) {
  constexpr const char* kAdvice =
      "put the model's own tokenizer.json beside it and give the folder";
  if (!metadata.has(kPre))
    reject("{}: no {}, so that how text is cut into words is not known; {}", metadata.source_path(),
           quote_text(kPre), kAdvice);
  const auto name = metadata.text(kPre);
  std::vector<std::string_view> known;
  for (const auto& spec : kPreTokenizers) {
    for (const auto spec_name : spec.names)
      if (!spec_name.empty()) known.push_back(spec_name);
    if (name.empty() || std::ranges::find(spec.names, name) == spec.names.end()) continue;
    if (name == "default")
      log::warn(
          "{}: {} is {}, which stands for a pre-tokenizer that the converter did not know; ids are "
          "llama.cpp's and may not be the model's own: if you can, {}",
          metadata.source_path(), quote_text(kPre), quote_text(name), kAdvice);
    return spec;
  }
  reject("{}: the pre-tokenizer {} is not one that qkscope knows; it knows {}: {}",
         metadata.source_path(), quote_text(name), fmt::join(known, ", "), kAdvice);
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
    if (kind != "gpt2" && kind != "llama" && kind != "gemma4")
      reject("{}: the tokenizer {} is not one that qkscope knows; it reads gpt2, llama and gemma4",
             metadata_.source_path(), quote_text(kind));
    read_tokens();
    const bool adds_bos = kind == "gpt2" ? read_byte_bpe() : read_sentencepiece(kind == "gemma4");
    read_bos_eos(adds_bos);
    read_added_tokens();
    return std::move(file_);
  }

 private:
  // GGUF lists tokens by id. Gemma stores runs of spaces literally; other models use U+2581.
  void read_tokens() {
    const bool gemma = metadata_.text("general.architecture", "").starts_with("gemma");
    for (const Json& token : metadata_.array(kTokens)) {
      if (!token.is_string()) metadata_.fail(kTokens, "a list of strings");
      auto text = token.get<std::string>();
      if (find_invalid_utf8(text) != std::string::npos)
        reject("{}: token {} is not UTF-8", metadata_.source_path(), tokens_.size());
      if (gemma && text.find_first_not_of(' ') == std::string::npos) {
        std::string marks;
        for (std::size_t i = 0; i < text.size(); ++i) marks += unicode::kSpaceMarkUtf8;
        text = marks;
      }
      tokens_.push_back(std::move(text));
    }
    if (std::ssize(tokens_) > Vocabulary::kMaxId)
      reject("{}: {} tokens, expected at most {}", metadata_.source_path(), tokens_.size(),
             Vocabulary::kMaxId);
    for (std::size_t id = 0; id < tokens_.size(); ++id)
      file_.model.vocabulary.add(tokens_[id], static_cast<std::int32_t>(id));
  }

  // Reads a byte-level BPE tokenizer. Returns the default value of add_bos_token.
  bool read_byte_bpe() {
    const auto& spec = find_pre_tokenizer(metadata_);
    read_merges();
    file_.model.ignore_merges = spec.ignore_merges;
    if (spec.nfc) file_.normalizer = {{"type", "NFC"}};
    file_.pre_tokenizer = pre_tokenizer_json(spec);
    file_.decoder = {{"type", "ByteLevel"},
                     {"add_prefix_space", true},
                     {"trim_offsets", true},
                     {"use_regex", true}};
    return spec.add_bos;
  }

  void read_merges() {
    for (const Json& merge : metadata_.array(kMerges)) add_merge(merge);
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
        reject("{}: the merge {} is not two tokens with a space between that make a third",
               metadata_.source_path(), quote_text(text));
      return id;
    };
    const std::string both = std::string(left) + std::string(right);
    file_.model.merges.push_back({find(std::string(left)), find(std::string(right)), find(both)});
  }

  // Reads a SentencePiece tokenizer; Gemma 4 stores merges and no scores. Returns the default value
  // of add_bos_token.
  bool read_sentencepiece(bool stores_merges) {
    const bool prefixed = metadata_.flag("tokenizer.ggml.add_space_prefix", !stores_merges);
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
    if (const auto id = special_token_id("tokenizer.ggml.unknown_token_id"); id >= 0)
      file_.model.unknown = tokens_[static_cast<std::size_t>(id)];
    stores_merges ? read_merges() : derive_merges();
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
    if (!by_id && metadata_.array(kScores).size() != tokens_.size())
      reject("{}: {} scores for {} tokens", metadata_.source_path(),
             metadata_.array(kScores).size(), tokens_.size());
    std::vector<MergeCandidate> all;
    for (std::size_t id = 0; id < tokens_.size(); ++id) {
      const Json score = by_id ? Json(-static_cast<double>(id)) : metadata_.array(kScores)[id];
      if (!score.is_number()) metadata_.fail(kScores, "a list of numbers");
      auto splits = splits_of_token(id, score.get<double>());
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
  std::vector<MergeCandidate> splits_of_token(std::size_t id, double score) const {
    constexpr std::size_t kLongest = 1024;  // bytes; published tokens have fewer than 100
    const std::string_view token = tokens_[id];
    if (token.size() > kLongest)
      reject("{}: a token of {} bytes, expected at most {}", metadata_.source_path(), token.size(),
             kLongest);
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
  std::int64_t special_token_id(const std::string& key) const {
    if (!metadata_.has(key)) return -1;
    const auto id = metadata_.natural_number(key);
    if (id >= std::ssize(tokens_))
      metadata_.fail(key, fmt::format("the id of one of {} tokens", tokens_.size()));
    return id;
  }

  void read_bos_eos(bool adds_bos) {
    const auto token = [&](const char* key) {
      const auto id = special_token_id(key);
      return id < 0 ? std::string() : tokens_[static_cast<std::size_t>(id)];
    };
    file_.bos = token("tokenizer.ggml.bos_token_id");
    file_.eos = token("tokenizer.ggml.eos_token_id");
    file_.add_bos = metadata_.flag("tokenizer.ggml.add_bos_token", adds_bos);
    file_.add_eos = metadata_.flag("tokenizer.ggml.add_eos_token", false);
  }

  void read_added_tokens() {
    if (!metadata_.has(kTypes)) return;
    const Json& types = metadata_.array(kTypes);
    if (types.size() != tokens_.size())
      reject("{}: {} types for {} tokens", metadata_.source_path(), types.size(), tokens_.size());
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

std::string find_gguf_tokenizer(const std::string& folder_or_file) {
  const auto own = std::filesystem::path(folder_or_file) / "tokenizer.json";
  return path_exists(own.string()) ? "" : find_gguf_file(folder_or_file);
}

TokenizerFile parse_gguf_tokenizer(const GgufMetadata& metadata) {
  return GgufTokenizerReader(metadata).read();
}

TokenizerFile read_gguf_tokenizer(const std::string& path) {
  const MappedFile file(path);
  const auto header = parse_gguf(file.bytes(), path);
  return parse_gguf_tokenizer({header, path});
}

std::vector<std::int32_t> gguf_end_token_ids(const std::string& path) {
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
