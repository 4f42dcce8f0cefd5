// Truncated and parallel encoding give the same ids as encoding the whole text at once.
#include <algorithm>
#include <filesystem>

#include <gtest/gtest.h>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/core/thread_pool.h"
#include "base/io/output_file.h"
#include "input/tokenizer/data_files.h"
#include "input/tokenizer/sample_text.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

const char* const kNames[] = {"gpt2",
                              "gpt2-prefix",
                              "llama3",
                              "qwen2",
                              "tekken",
                              "glm",
                              "roberta",
                              "llama2",
                              "mistral",
                              "metaspace-always",
                              "metaspace-first",
                              "metaspace-strip",
                              "gemma",
                              "other-pattern",
                              "falcon",
                              "added",
                              "added-raw",
                              "prefix",
                              "unknown-fused",
                              "fallback-holes"};

// Encodes a text that is too short to be cut into pieces.
std::vector<std::int32_t> plain_ids(const Tokenizer& tokenizer, const std::string& text) {
  return tokenizer.encode(text, {false, 0}).ids;
}

class Truncation : public testing::TestWithParam<const char*> {};

TEST_P(Truncation, KeepsTheFirstIdsOfTheFullEncoding) {
  const Tokenizer tokenizer = load_small(GetParam());
  for (unsigned seed = 0; seed < 20; ++seed) {
    const std::string text = sample_text(3000, seed);
    const auto all = plain_ids(tokenizer, text);
    for (const std::int64_t limit : {1, 2, 7, 50, 199, 100000}) {
      const auto cut = tokenizer.encode(text, {false, limit});
      const auto count = std::min(all.size(), static_cast<std::size_t>(limit));
      ASSERT_EQ(cut.ids,
                std::vector(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count)));
      ASSERT_EQ(cut.truncated, all.size() > count);
    }
  }
}

TEST_P(Truncation, KeepsTheLastIdsIfTruncatingOnTheLeft) {
  const TemporaryFolder folder;
  std::filesystem::copy(data_file(GetParam()), folder.file("tokenizer.json"));
  write_file(folder.file("tokenizer_config.json"), R"({"truncation_side": "left"})");
  const Tokenizer tokenizer = Tokenizer::load(folder.path());
  for (unsigned seed = 0; seed < 10; ++seed) {
    const std::string text = sample_text(3000, seed);
    const auto all = plain_ids(tokenizer, text);
    for (const std::int64_t limit : {1, 3, 40, 200}) {
      const auto cut = tokenizer.encode(text, {false, limit}).ids;
      const auto count = std::min(all.size(), static_cast<std::size_t>(limit));
      ASSERT_EQ(cut, std::vector(all.end() - static_cast<std::ptrdiff_t>(count), all.end()));
    }
  }
}

TEST_P(Truncation, EncodingInPiecesGivesTheSameIds) {
  const Tokenizer tokenizer = load_small(GetParam());
  const std::string text = sample_text(400'000, 3);
  set_thread_count(1);
  const auto one = tokenizer.encode(text).ids;
  set_thread_count(4);
  const auto four = tokenizer.encode(text).ids;
  set_thread_count(0);
  EXPECT_EQ(one, four);
  // Offsets use a separate code path without the word cache.
  EXPECT_EQ(tokenizer.encode(text, {true, 0, true}).ids, one);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Truncation, testing::ValuesIn(kNames), [](const auto& test) {
  std::string name = test.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(TruncationLimits, CountSpecialTokens) {
  const Tokenizer tokenizer = load_small("tekken");  // adds <s> and </s>
  const auto encoding = tokenizer.encode("one two three four five six", {true, 5});
  EXPECT_EQ(encoding.ids.size(), 5u);
  EXPECT_EQ(tokenizer.token_string(encoding.ids.front()), "<s>");
  EXPECT_EQ(tokenizer.token_string(encoding.ids.back()), "</s>");
  EXPECT_THROW(tokenizer.encode("one", {true, 1}), Error);
}

// Text beyond the needed ids is never read.
TEST(TruncationLimits, EncodeOnlyTheTextThatIsNeeded) {
  std::string text = sample_text(20'000, 1);
  text += "\xFF\xFF not UTF-8";
  const Tokenizer tokenizer = load_small("llama3");
  EXPECT_EQ(tokenizer.encode(text, {true, 100}).ids.size(), 100u);
  EXPECT_THROW(tokenizer.encode(text), Error);
}

TEST(TruncationLimits, AVeryLongWordIsEncodedInNearLinearTime) {
  const std::string text(600'000, 'a');
  for (const char* name : {"llama2", "llama3", "mistral"}) {
    const Tokenizer tokenizer = load_small(name);
    const auto all = tokenizer.encode(text, {false, 0}).ids;
    const auto cut = tokenizer.encode(text, {false, 1000}).ids;
    EXPECT_TRUE(std::equal(cut.begin(), cut.end(), all.begin())) << name;
  }
}

}  // namespace
}  // namespace qkscope
