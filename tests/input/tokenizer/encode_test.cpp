#include <atomic>
#include <filesystem>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/core/thread_pool.h"
#include "base/io/json.h"
#include "base/io/mapped_file.h"
#include "base/io/output_file.h"
#include "error_message.h"
#include "input/tokenizer/data_files.h"
#include "input/tokenizer/sample_text.h"
#include "sanitized.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

TEST(Encode, ByteLevelTokenizersDecodeToTheOriginalText) {
  for (const char* name : {"gpt2", "llama3", "tekken", "glm", "starcoder", "other-pattern"}) {
    const Tokenizer tokenizer = load_small(name);
    for (unsigned seed = 0; seed < 50; ++seed) {
      const std::string text = sample_text(500, seed);
      EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, {false}).ids), text) << name;
    }
  }
}

TEST(Encode, EveryCodePointSurvivesARoundTrip) {
  const Tokenizer tokenizer = load_small("llama3");
  for (char32_t block = 0; block < 0x110000; block += 256) {
    if (block >= 0xD800 && block < 0xE000) continue;
    std::string text;
    for (char32_t code = block; code < block + 256; ++code) utf8::append_code_point(text, code);
    ASSERT_EQ(tokenizer.decode(tokenizer.encode(text, {false}).ids), text) << std::hex << +block;
  }
}

TEST(Encode, ConcurrentEncodingGivesTheSameIds) {
  const Tokenizer tokenizer = load_small("qwen2");
  const std::string text = sample_text(5000, 1);
  const auto expected = tokenizer.encode(text).ids;
  set_thread_count(8);
  parallel_for(200, [&](std::int64_t) { EXPECT_EQ(tokenizer.encode(text).ids, expected); });
  set_thread_count(0);
}

TEST(Encode, WorksInAChildForkedFromABusyProcess) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own locks may stay locked in the child";
  const Tokenizer tokenizer = load_small("gpt2");
  std::atomic<bool> stop = false;
  std::vector<std::thread> busy;
  for (int i = 0; i < 3; ++i)
    busy.emplace_back([&] {
      while (!stop) tokenizer.encode("a");
    });
  int failed = 0;
  for (int i = 0; i < 100 && failed == 0; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(10);
      _exit(tokenizer.encode("a").ids.size() == 1 ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    failed += status != 0;
  }
  stop = true;
  for (auto& thread : busy) thread.join();
  EXPECT_EQ(failed, 0);
}

TEST(Encode, InvalidUtf8IsRejectedWithItsByteOffset) {
  const Tokenizer tokenizer = load_small("gpt2");
  for (const std::string bad :
       {"abc\xFF", "abc\xC3", "abc\xED\xA0\x80", "abc\xC0\xAF", "abc\x80"}) {
    const std::string message = bad_input_message([&] { tokenizer.encode(bad); });
    EXPECT_NE(message.find("byte 3"), std::string::npos) << message;
  }
}

TEST(Encode, EmptyTextHasOnlySpecialTokens) {
  EXPECT_TRUE(load_small("gpt2").encode("").ids.empty());
  EXPECT_EQ(load_small("llama3").encode("").ids.size(), 1u);
  EXPECT_TRUE(load_small("llama3").encode("", {false}).ids.empty());
  EXPECT_EQ(load_small("llama3").encode("", {true, 0, true}).offsets.size(), 1u);
}

// A prefix encoded by byte fallback gives more tokens than the text has bytes. Offsets of such
// tokens are meaningless and must equal those of the Hugging Face library (0.23).
TEST(Encode, OffsetsOfAByteFallbackPrefixStayInBounds) {
  Json model = {{"type", "BPE"},
                {"byte_fallback", true},
                {"continuing_subword_prefix", "##"},
                {"vocab", {{"a", 0}, {"##b", 1}, {"ab", 2}}},
                {"merges", {"a ##b"}}};
  for (int byte = 0; byte < 256; ++byte) model["vocab"][fmt::format("<0x{:02X}>", byte)] = byte + 3;
  const auto tokenizer = Tokenizer::from_json(Json{{"model", model}}.dump(), "t");
  const std::vector<TokenOffset> latin = {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 6}, {6, 7}};
  EXPECT_EQ(tokenizer.encode("axx", {false, 0, true}).offsets, latin);
  const auto wide = tokenizer.encode("é世界", {false, 0, true}).offsets;
  ASSERT_EQ(wide.size(), 12u);
  EXPECT_EQ(wide[7], (TokenOffset{2, 3}));
  EXPECT_EQ(wide[8], (TokenOffset{8, 9}));
  EXPECT_EQ(wide[11], (TokenOffset{11, 12}));
}

TEST(Encode, TokenStringsAndVocabularySizeIncludeAddedTokens) {
  const Tokenizer tokenizer = load_small("llama3");
  const auto ids = tokenizer.encode("Hi there", {false}).ids;
  EXPECT_EQ(tokenizer.token_string(ids.back()), "Ġthere");
  EXPECT_EQ(tokenizer.token_string(-1), "");
  EXPECT_EQ(tokenizer.token_string(1 << 30), "");
  EXPECT_EQ(tokenizer.vocab_size(), 523 + 3);
  EXPECT_EQ(tokenizer.decode(std::vector<std::int32_t>{-5, 1 << 30}), "");
}

// Encoding with offsets goes another way, token by token, and gives the same ids; decoded text is
// UTF-8 whatever the ids are.
TEST(Encode, OffsetsDoNotChangeIds) {
  const std::vector<std::string> tricky = {
      "\u1112\u1161\u11ab \uac01\uac00\u11a8 \u1112x\u1161",            // Hangul, composed and not
      "\ufb01 \u00bd A\u030a \u212b \ufdfa \u2460",                     // compatibility characters
      "a\u0315\u0300\u05ae e\u0301\u0327 \u0344 \u0958 q\u0307\u0323",  // combining marks
      "\u0130 \u1e9e \u03a3\u0391\u03a3",                               // lower case
      "it's I'LL we'Ve 'x '\u017f 'r 'v ' ",
      "I'm he'd they're we've I'll x'\u017f x'\u0161 x'ra x'va x'la x'r x'",
      "!\n/\n/x \x7f x\u3000 y\u00a0 z",
      "\u1100\u0301 \uac00\u0301 \uac01\u11a8 \uac00\u1dc0 \u09c7\u09be\u09be",
      "  lead\t\ttab\r\n\n  end  ",
      "\u4e16\u754c\u3002\u4f60\u597d\uff0c\u3400\u3002 \U0001f600\U0001f468\u200d\U0001f469",
      "HTTPServer camelCase x/y//z 3.14159 12345678 1a2b",
      "\u2581a \u2581 \u2581\u2581b_c",
      std::string(200, 'x') + "\u00e9" + std::string(200, 'y') + " " + std::string(70, '-'),
      "",
      " "};
  for (const auto& entry :
       std::filesystem::directory_iterator(source_path("tests/input/tokenizer/data"))) {
    const Json json = load_json(entry.path().string());
    if (!json.contains("model")) continue;
    auto texts = tricky;
    for (const auto& token : json.value("added_tokens", Json::array())) {
      const auto content = token["content"].get<std::string>();
      texts.push_back("x" + content + "y  " + content + "  z" + content + content);
      texts.push_back(content);
      texts.push_back(" " + content + "y");
    }
    const auto tokenizer = Tokenizer::load(entry.path().string());
    for (const auto& text : texts) {
      const auto plain = tokenizer.encode(text).ids;
      const auto aligned = tokenizer.encode(text, {true, 0, true});
      EXPECT_EQ(aligned.ids, plain) << entry.path() << ": " << text;
      EXPECT_EQ(aligned.offsets.size(), plain.size()) << entry.path() << ": " << text;
      for (const auto& [begin, end] : aligned.offsets) EXPECT_LE(begin, end) << text;
    }
    std::vector<std::int32_t> ids;
    for (std::int32_t id = 0; id < 600; ++id) ids.push_back(id * 7 % 601);
    for (const bool skip : {false, true})
      EXPECT_EQ(find_invalid_utf8(tokenizer.decode(ids, skip)), std::string::npos) << entry.path();
  }
}

TEST(Encode, ATextAboveAGibibyteIsRefused) {
  const TemporaryFolder folder;
  write_file(folder.file("large"), "");
  std::filesystem::resize_file(folder.file("large"), std::uintmax_t{1} << 30);  // sparse
  const MappedFile large(folder.file("large"));
  EXPECT_EQ(bad_input_message([&] { load_small("gpt2").encode(large.text()); }),
            "a text of 1073741824 bytes is too long; the limit is 1 GiB");
}

TEST(Encode, DecodersKeepWhatTheyDoNotUnderstand) {
  const auto decoded = [](const char* decoder, const std::vector<std::string>& tokens) {
    Json json = {{"model", {{"type", "BPE"}, {"vocab", Json::object()}, {"merges", Json::array()}}},
                 {"decoder", Json::parse(decoder)}};
    std::vector<std::int32_t> ids;
    for (const auto& token : tokens) {
      json["model"]["vocab"][token] = ids.size();
      ids.push_back(static_cast<std::int32_t>(ids.size()));
    }
    return Tokenizer::from_json(json.dump(), "t").decode(ids);
  };
  EXPECT_EQ(
      decoded(R"({"type": "ByteFallback"})", {"<0x41>", "<0xZZ>", "<0x4g>", "<0x410", "<0x>"}),
      "A<0xZZ><0x4g><0x410<0x>");
  EXPECT_EQ(decoded(R"({"type": "ByteFallback"})", {"<0xC3>", "<0xA9>", "x", "<0xE4>"}),
            "\u00e9x\ufffd");
  EXPECT_EQ(decoded(R"({"type": "Strip", "content": "x", "start": 1, "stop": 2})",
                    {"xxaxxx", "bx", "c", "xx"}),
            "xaxbc");
  EXPECT_EQ(decoded(R"({"type": "Metaspace", "replacement": "_", "add_prefix_space": false})",
                    {"_a", "_b"}),
            " a b");
  EXPECT_EQ(decoded(R"({"type": "Metaspace", "replacement": "_"})", {"_a", "_b"}), "a b");
  EXPECT_EQ(decoded("null", {"a", "b"}), "a b");
}

TEST(Encode, AnEmptyVocabularyGivesNoTokens) {
  const auto load = [](const std::string& rest) {
    return Tokenizer::from_json(
        R"({"model": {"type": "BPE", "vocab": {}, "merges": []})" + rest + "}", "t");
  };
  EXPECT_TRUE(load("").encode("ab c").ids.empty());
  const auto odd = load(R"(, "normalizer": {"type": "Sequence", "normalizers": [null,
      {"type": "Prepend", "prepend": ""}, {"type": "Strip", "strip_left": false,
      "strip_right": true}]}, "truncation": {"direction": "Left"}, "added_tokens": [
      {"content": " ", "normalized": true, "__type": "AddedToken", "id": 0}, {"content": ""}])");
  EXPECT_TRUE(odd.encode("ab c").ids.empty());
  EXPECT_EQ(load(R"(, "truncation": {"direction": "Right"})").vocab_size(), 0);
  EXPECT_EQ(load(R"(, "truncation": {"strategy": "x"})").vocab_size(), 0);
}

TEST(HasTokenizer, FindsTokenizerJsonAndGguf) {
  const TemporaryFolder folder;
  EXPECT_FALSE(has_tokenizer(folder.path()));
  write_file(folder.file("tokenizer.json"), "{}");
  EXPECT_TRUE(has_tokenizer(folder.path()));
  EXPECT_TRUE(has_tokenizer(source_path("tests/golden/gguf_llama")));
}

}  // namespace
}  // namespace qkscope
