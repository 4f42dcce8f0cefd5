// Accepted and rejected content of tokenizer.json, and the effect of tokenizer_config.json.
#include "input/tokenizer/tokenizer_file.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "base/io/json.h"
#include "base/io/output_file.h"
#include "error_message.h"
#include "input/tokenizer/data_files.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

const Json kTiny = Json::parse(R"({"version": "1.0", "added_tokens": [],
  "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}})");

Tokenizer load(const Json& json) {
  return Tokenizer::from_json(json.dump(), "tiny.json");
}

std::vector<std::int32_t> ids(const Json& json, const std::string& text) {
  return load(json).encode(text).ids;
}

// Returns the error message for the tiny tokenizer with one value replaced.
std::string refusal(const std::string& place, const Json& value) {
  Json json = kTiny;
  json[Json::json_pointer(place)] = value;
  return bad_input_message([&] { load(json); });
}

TEST(TokenizerFile, MergesMayBePairsOrStringsAndTypeIsOptional) {
  EXPECT_EQ(ids(kTiny, "aab"), (std::vector<std::int32_t>{0, 2}));
  Json old = kTiny;
  old["model"]["merges"] = {"#version: 0.2", "a b"};
  old["model"].erase("type");
  EXPECT_EQ(ids(old, "aab"), (std::vector<std::int32_t>{0, 2}));
}

TEST(TokenizerFile, KeyOrderDoesNotMatter) {
  const std::string text = R"({"model": {"merges": ["a ##b"], "vocab": {"a": 0, "##b": 1, "ab": 2},
    "continuing_subword_prefix": "##"}, "version": "1.0"})";
  EXPECT_EQ(Tokenizer::from_json(text, "t").encode("abb").ids, (std::vector<std::int32_t>{2, 1}));
  const std::string prefix_last = R"({"model": {"vocab": {"a": 0, "##b": 1, "ab": 2},
    "merges": ["a ##b"], "continuing_subword_prefix": "##"}, "version": "1.0"})";
  EXPECT_EQ(Tokenizer::from_json(prefix_last, "t").encode("abb").ids,
            (std::vector<std::int32_t>{2, 1}));
}

TEST(TokenizerFile, DuplicateModelKeysAreRejected) {
  const std::string head = R"({"model": {"vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"], )";
  for (const std::string again : {R"("merges": ["a b"]}})", R"("vocab": {"a": 0}}})",
                                  R"("continuing_subword_prefix": null,
                                     "continuing_subword_prefix": "#"}})"}) {
    const auto message = bad_input_message([&] { Tokenizer::from_json(head + again, "t"); });
    EXPECT_NE(message.find("is there twice"), std::string::npos) << message;
  }
}

TEST(TokenizerFile, UnboundedGrowthByNormalizersIsRejected) {
  Json json = kTiny;
  const Json tenfold = {
      {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aaaaaaaaaa"}};
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", Json::array()}};
  for (int i = 0; i < 12; ++i) json["normalizer"]["normalizers"].push_back(tenfold);
  const auto message = bad_input_message([&] { ids(json, "aaaa"); });
  EXPECT_NE(message.find("grow more than 64 times"), std::string::npos) << message;
}

TEST(TokenizerFile, UnknownSettingsAreNamed) {
  const auto expect = [](const std::string& place, const Json& value, const std::string& word) {
    const std::string message = refusal(place, value);
    EXPECT_NE(message.find(word), std::string::npos) << message;
    EXPECT_NE(message.find("tiny.json"), std::string::npos) << message;
  };
  expect("/surprise", 1, "surprise");
  expect("/version", "2.0", "2.0");
  expect("/model/type", "Unigram", "Unigram");
  expect("/model/dropout", 0.1, "dropout");
  expect("/model/end_of_word_suffix", "</w>", "end_of_word_suffix");
  expect("/model/novelty", true, "novelty");
  expect("/pre_tokenizer",
         Json{{"type", "Split"},
              {"pattern", {{"Regex", std::string(20'000, 'x') + "+"}}},
              {"behavior", "Isolated"},
              {"invert", false}},
         "20001 bytes");
  expect("/model/continuing_subword_prefix", std::string(65, '#'), "65 bytes");
  expect("/model/unk_token", "?", "unk_token");
  expect("/model/vocab/c", -1, "\"c\"");
  expect("/model/vocab/c", 1 << 24, "\"c\"");
  expect("/model/merges/0", Json{"a", "z"}, "\"z\"");
  expect("/model/merges/0", Json{"b", "a"}, "\"ba\"");
  expect("/model/merges/0", "a b c", "a b c");
  expect("/normalizer", Json{{"type", "Nmt"}}, "Nmt");
  expect("/normalizer", Json{{"type", "NFC"}, {"extra", 1}}, "extra");
  expect("/pre_tokenizer", Json{{"type", "BertPreTokenizer"}}, "BertPreTokenizer");
  expect("/pre_tokenizer", Json{{"type", "Digits"}}, "individual_digits");
  expect("/post_processor", Json{{"type", "BertProcessing"}}, "BertProcessing");
  expect("/decoder", Json{{"type", "CTC"}}, "CTC");
  expect("/added_tokens/0", Json{{"content", "x"}, {"odd", true}}, "odd");
}

TEST(TokenizerFile, MissingPartsAreNamed) {
  EXPECT_NE(bad_input_message([] { Tokenizer::load("/nowhere/tokenizer.json"); }).find("/nowhere"),
            std::string::npos);
  const TemporaryFolder folder;
  EXPECT_NE(bad_input_message([&] { Tokenizer::load(folder.path()); }).find("tokenizer.json"),
            std::string::npos);
  EXPECT_NE(bad_input_message([] { parse_tokenizer("{}", "t"); }).find("model"), std::string::npos);
  EXPECT_NE(bad_input_message([] { parse_tokenizer("\xFF", "t"); }).find("byte 0"),
            std::string::npos);
}

// Returns the token strings of "the" for a small tokenizer with a tokenizer_config.json.
std::vector<std::string> with_config(const std::string& name, const std::string& config) {
  const TemporaryFolder folder;
  std::filesystem::copy(data_file(name), folder.file("tokenizer.json"));
  write_file(folder.file("tokenizer_config.json"), config);
  const Tokenizer tokenizer = Tokenizer::load(folder.path());
  std::vector<std::string> out;
  for (const auto id : tokenizer.encode("the").ids) out.push_back(tokenizer.token_string(id));
  return out;
}

TEST(TokenizerFile, TokenizerConfigAddsBosAndEosWithoutAPostProcessor) {
  using Strings = std::vector<std::string>;
  const std::string both = R"({"add_bos_token": true, "bos_token": "</s>", "add_eos_token": true,
                               "eos_token": {"content": "<|pad|>"}})";
  EXPECT_EQ(with_config("other-pattern", "{}"), (Strings{"the"}));
  EXPECT_EQ(with_config("other-pattern", both), (Strings{"</s>", "the", "<|pad|>"}));
  EXPECT_EQ(with_config("other-pattern", R"({"add_bos_token": false, "bos_token": "<s>"})"),
            (Strings{"the"}));
  EXPECT_EQ(with_config("llama3", both),
            (Strings{"<s>", "the"}));  // the tokenizer has a post-processor
}

TEST(TokenizerFile, TokenizerConfigMayAddTokens) {
  const TemporaryFolder folder;
  std::filesystem::copy(data_file("llama3"), folder.file("tokenizer.json"));
  write_file(folder.file("tokenizer_config.json"),
             R"({"added_tokens_decoder": {"526": {"content": "<new>", "special": true}}})");
  const Tokenizer tokenizer = Tokenizer::load(folder.path());
  EXPECT_EQ(tokenizer.encode("<new>", {false}).ids, (std::vector<std::int32_t>{526}));
}

}  // namespace
}  // namespace qkscope
