// Tokenizers in GGUF metadata give the same ids as the tokenizer.json they were converted from.
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/io/json.h"
#include "base/io/output_file.h"
#include "error_message.h"
#include "input/checkpoint/gguf_bytes.h"
#include "input/tokenizer/tokenizer_file.h"
#include "paths.h"
#include "qkscope/experimental/log.h"
#include "qkscope/tokenizer.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Tokenizer load(const GgufBytes& file) {
  const TemporaryFolder folder;
  write_file(folder.file("model.gguf"), file.build());
  return Tokenizer::load(folder.path());
}

std::string refusal(const GgufBytes& file) {
  return bad_input_message([&] { load(file); });
}

// Converts a byte-level tokenizer.json like llama.cpp's converter.
GgufBytes converted(const std::string& path, const std::string& pre) {
  const Json json = load_json(path);
  std::map<std::int64_t, std::pair<std::string, std::int32_t>> tokens;
  for (const auto& [token, id] : json["model"]["vocab"].items())
    tokens[id.get<std::int64_t>()] = {token, 1};
  for (const auto& token : json["added_tokens"])
    tokens[token["id"].get<std::int64_t>()] = {token["content"].get<std::string>(),
                                               token["special"].get<bool>() ? 3 : 4};
  std::vector<std::string> texts;
  std::vector<std::int32_t> types;
  for (const auto& [id, token] : tokens) {
    EXPECT_EQ(id, std::ssize(texts)) << path;
    texts.push_back(token.first);
    types.push_back(token.second);
  }
  std::vector<std::string> merges;
  for (const auto& merge : json["model"]["merges"])
    merges.push_back(merge.is_string()
                         ? merge.get<std::string>()
                         : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  return GgufBytes()
      .text("tokenizer.ggml.model", "gpt2")
      .text("tokenizer.ggml.pre", pre)
      .texts("tokenizer.ggml.tokens", texts)
      .integers("tokenizer.ggml.token_type", types)
      .texts("tokenizer.ggml.merges", merges)
      .flag("tokenizer.ggml.add_bos_token", false);
}

// Four letters, and tokens of two and three letters; "bc" has the highest score.
GgufBytes sentencepiece() {
  return GgufBytes()
      .text("tokenizer.ggml.model", "llama")
      .texts("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "\xE2\x96\x81", "a", "b", "c", "ab",
                                       "bc", "abc", "<0x21>", std::string("\xE2\x96\x81") + "abc"})
      .reals("tokenizer.ggml.scores", {0, 0, 0, -9, -9, -9, -9, -2, -1, -3, 0, -4})
      .integers("tokenizer.ggml.token_type", {2, 3, 3, 1, 1, 1, 1, 1, 1, 1, 6, 1})
      .number("tokenizer.ggml.bos_token_id", 1)
      .number("tokenizer.ggml.unknown_token_id", 0);
}

TEST(GgufTokenizer, PreTokenizersMatchTheModelFamilies) {
  const std::string text =
      "The year 1984, they'll say: HE'S 42000!\n\n  naïve  déjà-vu\t end ½ 日本語 \U0001F600.";
  for (const auto& [name, pre] : {std::pair{"gpt2", "gpt-2"}, std::pair{"starcoder", "smollm"},
                                  std::pair{"llama3", "llama-bpe"}, std::pair{"qwen2", "qwen2"},
                                  std::pair{"tekken", "tekken"}}) {
    const auto path = source_path("tests/input/tokenizer/data/") + name + ".json";
    const auto ids = load(converted(path, pre)).encode(text).ids;
    const auto tokenizer = Tokenizer::load(path);
    EXPECT_EQ(ids, tokenizer.encode(text, {.add_special_tokens = false}).ids) << name;
    EXPECT_EQ(load(converted(path, pre)).decode(ids), tokenizer.decode(ids)) << name;
  }
}

// A byte-level tokenizer with the vocabulary of a golden file.
GgufBytes byte_level_file(const Json& golden, const std::string& pre) {
  const auto tokens = golden["tokens"].get<std::vector<std::string>>();
  return GgufBytes()
      .text("tokenizer.ggml.model", "gpt2")
      .text("tokenizer.ggml.pre", pre)
      .texts("tokenizer.ggml.tokens", tokens)
      .integers("tokenizer.ggml.token_type", std::vector<std::int32_t>(tokens.size(), 1))
      .texts("tokenizer.ggml.merges", golden["merges"].get<std::vector<std::string>>());
}

void expect_ids(const Tokenizer& tokenizer, const Json& texts, const Json& ids,
                const std::string& name) {
  for (std::size_t i = 0; i < texts.size(); ++i)
    EXPECT_EQ(tokenizer.encode(texts[i].get<std::string>()).ids,
              ids[i].get<std::vector<std::int32_t>>())
        << name << ": " << texts[i];
}

// llama_cpp_ids.json contains llama.cpp's ids of the texts for the same file
// (tools/make_llama_cpp_ids.py). Names with equal ids are joined by spaces.
TEST(GgufTokenizer, IdsMatchLlamaCpp) {
  const Json golden = load_json(source_path("tests/input/tokenizer/data/llama_cpp_ids.json"));
  for (const auto& [names, ids] : golden["ids"].items()) {
    std::istringstream list(names);
    for (std::string name; list >> name;)
      expect_ids(load(byte_level_file(golden, name).flag("tokenizer.ggml.add_bos_token", false)),
                 golden["texts"], ids, name);
  }
}

// gguf_pre_tokenizers.json contains the ids of the Hugging Face library for the tokenizer.json of
// the models (tools/make_gguf_pre_tokenizers_golden.py).
TEST(GgufTokenizer, IdsMatchTheTokenizerJsonOfTheModels) {
  const Json golden = load_json(source_path("tests/input/tokenizer/data/gguf_pre_tokenizers.json"));
  Json vocabulary;
  for (std::size_t id = 0; id < golden["tokens"].size(); ++id)
    vocabulary[golden["tokens"][id].get<std::string>()] = id;
  for (const Json& row : golden["rows"]) {
    for (const Json& name : row["names"])
      expect_ids(load(byte_level_file(golden, name.get<std::string>())
                          .flag("tokenizer.ggml.add_bos_token", false)),
                 golden["texts"], row["ids"], name.get<std::string>());
    const auto first = row["names"][0].get<std::string>();
    if (first == "kimi-k2") continue;  // has no tokenizer.json, and PCRE2 cannot intersect classes
    const TemporaryFolder folder;
    write_file(folder.file("tokenizer.json"), Json{{"added_tokens", Json::array()},
                                                   {"normalizer", row["normalizer"]},
                                                   {"pre_tokenizer", row["pre_tokenizer"]},
                                                   {"post_processor", nullptr},
                                                   {"decoder", nullptr},
                                                   {"model",
                                                    {{"type", "BPE"},
                                                     {"vocab", vocabulary},
                                                     {"merges", golden["merges"]},
                                                     {"ignore_merges", row["ignore_merges"]}}}}
                                                  .dump());
    expect_ids(Tokenizer::load(folder.path()), golden["texts"], row["ids"],
               "tokenizer.json of " + first);
  }
}

TEST(GgufTokenizer, PreTokenizersSayWhetherBosIsAdded) {
  const Json golden = load_json(source_path("tests/input/tokenizer/data/gguf_pre_tokenizers.json"));
  const auto prefix = [&](const char* name) {
    return load(byte_level_file(golden, name).number("tokenizer.ggml.bos_token_id", 5))
        .prefix_ids();
  };
  for (const char* name : {"llama-bpe", "falcon-h1", "lfm2", "pixtral", "tekken"})
    EXPECT_THAT(prefix(name), ElementsAre(5)) << name;
  for (const char* name : {"glm4", "dbrx", "qwen35", "deepseek-v3", "gpt-4o", "command-r"})
    EXPECT_THAT(prefix(name), IsEmpty()) << name;
}

// The merges of Gemma 4 are stored; its text is neither prefixed with a space nor split.
TEST(GgufTokenizer, Gemma4StoresItsMerges) {
  const std::string mark = "\xE2\x96\x81";
  auto file =
      GgufBytes()
          .text("general.architecture", "gemma4")
          .text("tokenizer.ggml.model", "gemma4")
          .texts("tokenizer.ggml.tokens", {"<unk>", "<bos>", "a", "b", "c", "ab", "bc", mark, "  ",
                                           "b" + mark, "<0x21>", "\n", "\n\n"})
          .integers("tokenizer.ggml.token_type", {2, 3, 1, 1, 1, 1, 1, 1, 1, 1, 6, 1, 1})
          .texts("tokenizer.ggml.merges", {"b c", "a b", "b " + mark, mark + " " + mark, "\n \n"})
          .number("tokenizer.ggml.bos_token_id", 1)
          .number("tokenizer.ggml.unknown_token_id", 0);
  const auto tokenizer = load(file);
  EXPECT_THAT(tokenizer.encode("abc").ids, ElementsAre(1, 2, 6));
  EXPECT_THAT(tokenizer.encode("cb a").ids, ElementsAre(1, 4, 9, 2));
  EXPECT_THAT(tokenizer.encode("a  c\n\n!?").ids, ElementsAre(1, 2, 8, 4, 12, 10, 0));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(" ab  c!").ids, true), " ab  c!");
  EXPECT_THAT(
      refusal(
          GgufBytes().text("tokenizer.ggml.model", "gemma4").texts("tokenizer.ggml.tokens", {"a"})),
      HasSubstr("tokenizer.ggml.merges"));
}

// SentencePiece has no pre-tokenizer, so all of its files say "default".
TEST(GgufTokenizer, DefaultPreTokenizerWarnsExceptForSentencePiece) {
  std::vector<std::string> heard;
  set_log_callback([&](LogLevel, std::string_view message) { heard.emplace_back(message); });
  load(sentencepiece().text("tokenizer.ggml.pre", "default"));
  EXPECT_THAT(heard, IsEmpty());
  load(converted(source_path("tests/input/tokenizer/data/gpt2.json"), "default"));
  set_log_callback(nullptr);
  EXPECT_THAT(heard, ElementsAre(HasSubstr("ids are llama.cpp's and may not be the model's own")));
}

TEST(GgufTokenizer, MetadataNameBosAndEos) {
  auto file = sentencepiece().number("tokenizer.ggml.eos_token_id", 2);
  const auto tokenizer = load(file);
  EXPECT_EQ(tokenizer.bos_id(), 1);
  EXPECT_EQ(tokenizer.eos_id(), 2);
  EXPECT_THAT(tokenizer.prefix_ids(), ElementsAre(1));  // SentencePiece adds BOS by default
  const auto without = load(file.flag("tokenizer.ggml.add_bos_token", false));
  EXPECT_EQ(without.bos_id(), 1);
  EXPECT_THAT(without.prefix_ids(), IsEmpty());
}

TEST(GgufTokenizer, EndTokensAreThoseOfTextTurnAndMessage) {
  const TemporaryFolder folder;
  write_file(folder.file("model.gguf"), sentencepiece()
                                            .number("tokenizer.ggml.eos_token_id", 2)
                                            .number("tokenizer.ggml.eot_token_id", 7)
                                            .number("tokenizer.ggml.eom_token_id", 2)
                                            .build());
  EXPECT_THAT(gguf_end_token_ids(folder.file("model.gguf")), ElementsAre(2, 7));
}

TEST(GgufTokenizer, SentencePieceMergesAreOrderedByScore) {
  const auto tokenizer = load(sentencepiece());
  // "▁abc": bc scores higher than ab; then a+bc and ▁+abc are tokens.
  EXPECT_THAT(tokenizer.encode("abc").ids, ElementsAre(1, 11));
  EXPECT_THAT(tokenizer.encode("ab").ids, ElementsAre(1, 3, 7));
  EXPECT_THAT(tokenizer.encode("a!").ids, ElementsAre(1, 3, 4, 10));
  EXPECT_THAT(tokenizer.encode("a?</s>").ids, ElementsAre(1, 3, 4, 0, 2));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("abc ab!").ids, true), "abc ab!");
}

TEST(GgufTokenizer, AddSpacePrefixFalseKeepsTheTextUnchanged) {
  auto file = sentencepiece();
  file.flag("tokenizer.ggml.add_space_prefix", false).flag("tokenizer.ggml.add_bos_token", false);
  const auto tokenizer = load(file);
  EXPECT_THAT(tokenizer.encode("abc abc").ids, ElementsAre(9, 11));
  EXPECT_EQ(tokenizer.decode(std::vector<std::int32_t>{9, 11}), "abc abc");
}

TEST(GgufTokenizer, GemmaMergesAreOrderedById) {
  const auto tokenizer = load(GgufBytes()
                                  .text("general.architecture", "gemma2")
                                  .text("tokenizer.ggml.model", "llama")
                                  .texts("tokenizer.ggml.tokens", {"a", "b", "c", "ab", "bc", "  "})
                                  .flag("tokenizer.ggml.add_space_prefix", false)
                                  .flag("tokenizer.ggml.add_bos_token", false));
  EXPECT_THAT(tokenizer.encode("abc").ids, ElementsAre(3, 2));
}

TEST(GgufTokenizer, UnknownSettingsAreNamed) {
  const auto path = source_path("tests/input/tokenizer/data/gpt2.json");
  EXPECT_THAT(refusal(converted(path, "poro-chat")),
              AllOf(HasSubstr(R"(pre-tokenizer "poro-chat" is not)"), HasSubstr("smollm"),
                    HasSubstr("put the model's own tokenizer.json beside it")));
  EXPECT_THAT(
      refusal(
          GgufBytes().text("tokenizer.ggml.model", "gpt2").texts("tokenizer.ggml.tokens", {"a"})),
      HasSubstr(R"(no "tokenizer.ggml.pre", so that how text is cut)"));
  EXPECT_THAT(refusal(GgufBytes().text("tokenizer.ggml.model", "bert")), HasSubstr(R"("bert")"));
  EXPECT_THAT(refusal(GgufBytes()), HasSubstr(R"(no "tokenizer.ggml.model")"));
  EXPECT_THAT(refusal(sentencepiece().number("tokenizer.ggml.eos_token_id", 99)),
              HasSubstr("is 99, expected the id of one of 12 tokens"));
  const auto with_tokens = [] {
    return GgufBytes().text("tokenizer.ggml.model", "llama").texts("tokenizer.ggml.tokens", {"a"});
  };
  EXPECT_THAT(refusal(with_tokens().reals("tokenizer.ggml.scores", {1, 2})),
              HasSubstr("2 scores for 1 tokens"));
  EXPECT_THAT(refusal(GgufBytes()
                          .text("tokenizer.ggml.model", "gpt2")
                          .text("tokenizer.ggml.pre", "gpt-2")
                          .texts("tokenizer.ggml.tokens", {"a", "b"})
                          .texts("tokenizer.ggml.merges", {"a b"})),
              HasSubstr(R"(the merge "a b" is not two tokens)"));
}

// One row per refusal: the file, and what the message says.
TEST(GgufTokenizer, RefusalsSayWhatIsWrong) {
  const auto with_tokens = [](const std::string& kind, const std::vector<std::string>& tokens) {
    return GgufBytes().text("tokenizer.ggml.model", kind).texts("tokenizer.ggml.tokens", tokens);
  };
  const auto byte_level = [&] {
    return with_tokens("gpt2", {"a", "b", "ab"}).text("tokenizer.ggml.pre", "gpt-2");
  };
  const auto one_token = [&] {
    return with_tokens("llama", {"a"}).reals("tokenizer.ggml.scores", {1});
  };
  const std::string merge = "is not two tokens with a space between that make a third";
  const std::pair<std::string, GgufBytes> rows[] = {
      {"expected a list",
       GgufBytes().text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.tokens", "a")},
      {"expected a list of strings",
       GgufBytes().text("tokenizer.ggml.model", "gpt2").integers("tokenizer.ggml.tokens", {1})},
      {"token 1 is not UTF-8", with_tokens("gpt2", {"a", "\xff"})},
      {"expected a list of strings", byte_level().integers("tokenizer.ggml.merges", {1})},
      {"the merge \"ab\" " + merge, byte_level().texts("tokenizer.ggml.merges", {"ab"})},
      {"the merge \"a \" " + merge, byte_level().texts("tokenizer.ggml.merges", {"a "})},
      {"the merge \"x b\" " + merge, byte_level().texts("tokenizer.ggml.merges", {"x b"})},
      {"the merge \"a x\" " + merge, byte_level().texts("tokenizer.ggml.merges", {"a x"})},
      {"expected a list of numbers",
       with_tokens("llama", {"a"}).texts("tokenizer.ggml.scores", {"1"})},
      {"a token of 1025 bytes, expected at most 1024",
       with_tokens("llama", {std::string(1025, 'a')}).reals("tokenizer.ggml.scores", {1})},
      {"2 types for 1 tokens", one_token().integers("tokenizer.ggml.token_type", {1, 1})},
      {"expected a list of integers", one_token().reals("tokenizer.ggml.token_type", {1})},
      {"expected true or false", one_token().number("tokenizer.ggml.add_eos_token", 1)},
  };
  for (const auto& [message, file] : rows) EXPECT_THAT(refusal(file), HasSubstr(message));
  const auto empty_token = with_tokens("llama", {"a", ""})
                               .reals("tokenizer.ggml.scores", {1, 1})
                               .integers("tokenizer.ggml.token_type", {4, 3})
                               .flag("tokenizer.ggml.add_bos_token", false)
                               .flag("tokenizer.ggml.add_space_prefix", false);
  EXPECT_THAT(load(empty_token).encode("a").ids, ElementsAre(0));
  const TemporaryFolder folder;
  write_file(folder.file("model.gguf"),
             one_token().number("tokenizer.ggml.eot_token_id", 0x80000000).build());
  EXPECT_THAT(bad_input_message([&] { gguf_end_token_ids(folder.file("model.gguf")); }),
              HasSubstr("is 2147483648, expected a token id"));
}

}  // namespace
}  // namespace qkscope
