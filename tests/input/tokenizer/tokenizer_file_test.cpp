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

// One row per refusal: the place in tokenizer.json, its value as JSON, and the message.
TEST(TokenizerFile, RefusalsSayWhatIsWrong) {
  struct Row {
    const char* place;
    const char* value;
    const char* message;
  };
  const std::string roberta =
      R"({"type": "RobertaProcessing", "trim_offsets": true, "add_prefix_space": true, )";
  const std::string marks = R"({"type": "TemplateProcessing", "special_tokens": {"x": {"ids": [0]},
                                "y": {}, "z": 1}, "single": [)";
  const Row rows[] = {
      {"/normalizer", "1", "normalizer must be an object"},
      {"/normalizer", "{}", "normalizer has no \"type\""},
      {"/normalizer", R"({"type": "Sequence", "normalizers": 1})",
       "\"normalizers\" must be a list"},
      {"/normalizer", R"({"type": "Prepend", "prepend": 1})", "\"prepend\" must be a string"},
      {"/normalizer", R"({"type": "Strip", "strip_left": 1})",
       "\"strip_left\" must be true or false"},
      {"/normalizer", R"({"type": "Replace", "pattern": {"String": ""}, "content": ""})",
       "has an empty pattern"},
      {"/normalizer", R"({"type": "Replace", "pattern": {"Glob": "a"}, "content": ""})",
       "\"pattern\" must be {\"String\": ...} or {\"Regex\": ...}"},
      {"/normalizer", R"({"type": "Replace", "pattern": {"String": 1}, "content": ""})",
       "\"pattern\" must be"},
      {"/normalizer", R"({"type": "Replace", "pattern": {"String": "a", "Regex": "b"}})",
       "\"pattern\" must be"},
      {"/normalizer", R"({"type": "Replace", "pattern": "a", "content": ""})",
       "\"pattern\" must be"},
      {"/normalizer", R"({"type": "Replace", "pattern": {"Regex": "("}, "content": ""})",
       "cannot use the pattern '('"},
      {"/pre_tokenizer", R"({"type": "Metaspace", "replacement": "ab"})",
       "\"replacement\" must be one character"},
      {"/pre_tokenizer", R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "odd"})",
       "has the unknown prepend_scheme \"odd\""},
      {"/pre_tokenizer", R"({"type": "Metaspace", "replacement": "_", "add_prefix_space": false})",
       "says add_prefix_space false and a prepend_scheme other than \"never\""},
      {"/pre_tokenizer", R"({"type": "Punctuation", "behavior": "odd"})",
       "has the unknown behavior \"odd\""},
      {"/decoder", R"({"type": "Strip", "content": "ab", "start": 1, "stop": 0})",
       "\"content\" must be one character"},
      {"/decoder", R"({"type": "Strip", "content": "a", "start": "1", "stop": 0})",
       "\"start\" must be an integer"},
      {"/decoder", R"({"type": "Metaspace", "replacement": ""})",
       "\"replacement\" must be one character"},
      {"/added_tokens", "1", "added_tokens must be a list"},
      {"/added_tokens/0", "1", "an added token is no object: 1"},
      {"/added_tokens/0", "{}", "an added token has no content: {}"},
      {"/added_tokens/0", R"({"content": 1})", "an added token has no content"},
      {"/added_tokens/0", R"({"content": "x", "special": 1})",
       "has a \"special\" that is neither true nor false"},
      {"/truncation", R"({"direction": "Up"})", "truncation direction must be Left or Right"},
      {"/model/fuse_unk", "1", "model.fuse_unk must be true or false"},
      {"/model/unk_token", "1", "model.unk_token must be a string or null"},
      {"/model/merges/0", "[]", "a merge must name two tokens"},
      {"/model/merges/0", R"(["a"])", "a merge must name two tokens"},
      {"/model/merges/0", R"(["a", "b", "ab"])", "a merge must name two tokens"},
      {"/model/merges/0", R"("ab")", "the merge \"ab\" must be two tokens with a space between"},
      {"/model/continuing_subword_prefix", R"("##")", "the merged token \"b\" lacks the prefix"},
      {"/model/vocab/c", "1.5", "expected an integer"},
      {"/model/vocab/c", "1e3", "expected an integer"},
      {"/model/vocab/c", "null", "expected an integer"},
      {"/model", R"({"vocab": {}})", "the model has neither a type nor merges"},
      {"/model", R"({"type": "BPE", "vocab": {}})", "the BPE model needs \"vocab\" and \"merges\""},
      {"/model", R"({"merges": []})", "the BPE model needs \"vocab\" and \"merges\""},
  };
  for (const auto& [place, value, message] : rows)
    EXPECT_NE(refusal(place, Json::parse(value)).find(message), std::string::npos)
        << refusal(place, Json::parse(value));
  const auto expect_post_processor = [](const std::string& json, const std::string& message) {
    const auto found = refusal("/post_processor", Json::parse(json));
    EXPECT_NE(found.find(message), std::string::npos) << found;
  };
  expect_post_processor(roberta + R"("cls": ["a"], "sep": ["b", 1]})",
                        "\"cls\" must be [token, id]");
  expect_post_processor(roberta + R"("cls": ["a", 0], "sep": [1, 1]})",
                        "\"sep\" must be [token, id]");
  expect_post_processor(roberta + R"("cls": ["a", "0"], "sep": ["b", 1]})",
                        "has an id that is no integer");
  expect_post_processor(roberta + R"("cls": ["a", -1], "sep": ["b", 1]})", "has the id -1");
  expect_post_processor(roberta + R"("cls": ["a", 16777216], "sep": ["b", 1]})",
                        "has the id 16777216");
  expect_post_processor(R"({"type": "TemplateProcessing", "single": [], "special_tokens": 1})",
                        "\"special_tokens\" must be an object");
  const std::string listing = "\"single\" must list {\"Sequence\": ...}";
  for (const auto* item : {"1", "{}", R"({"Sequence": 1})", R"({"Sequence": {}})",
                           R"({"Sequence": {"id": 1}})", R"({"a": {"id": "A"}, "b": {}})"})
    expect_post_processor(marks + item + "]}", listing);
  expect_post_processor(marks + R"({"Sequence": {"id": "B"}}]})", "names the sequence B");
  expect_post_processor(marks + R"({"Other": {"id": "A"}}]})", "has a piece \"Other\"");
  for (const auto* name : {"w", "y", "z"})
    expect_post_processor(marks + R"({"SpecialToken": {"id": ")" + name + "\"}}]}",
                          std::string("does not say the ids of \"") + name);
}

TEST(TokenizerFile, ConfigurationsWithUnusableValuesAreRefusedOrIgnored) {
  const TemporaryFolder folder;
  std::filesystem::copy(data_file("llama3"), folder.file("tokenizer.json"));
  const auto load_with = [&](const std::string& config) {
    write_file(folder.file("tokenizer_config.json"), config);
    return Tokenizer::load(folder.path());
  };
  const auto message = [&](const std::string& config) {
    return bad_input_message([&] { load_with(config); });
  };
  EXPECT_NE(message("[]").find("expected a JSON object"), std::string::npos);
  EXPECT_NE(message(R"({"truncation_side": "up"})").find("must be \"left\" or \"right\""),
            std::string::npos);
  EXPECT_NE(message(R"({"added_tokens_decoder": {"x": {"content": "y"}}})").find("added_tokens"),
            std::string::npos);
  const auto ignored =
      load_with(R"({"add_bos_token": 1, "bos_token": 1, "eos_token": {"content": 1},
                                     "added_tokens_decoder": [], "truncation_side": "right"})");
  EXPECT_FALSE(ignored.bos_id() || ignored.eos_id());
  EXPECT_FALSE(load_with(R"({"eos_token": {}})").eos_id());
}

TEST(TokenizerFile, MissingPartsAreNamed) {
  EXPECT_NE(bad_input_message([] { Tokenizer::load("/nowhere/tokenizer.json"); }).find("/nowhere"),
            std::string::npos);
  const TemporaryFolder folder;
  EXPECT_NE(bad_input_message([&] { Tokenizer::load(folder.path()); }).find("tokenizer.json"),
            std::string::npos);
  EXPECT_NE(bad_input_message([] { parse_tokenizer_json("{}", "t"); }).find("model"),
            std::string::npos);
  EXPECT_NE(bad_input_message([] { parse_tokenizer_json("\xFF", "t"); }).find("byte 0"),
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
