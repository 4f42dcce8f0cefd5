// Texts cut into chunks: windows, special tokens, overlap, least length and character ranges.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "error_message.h"
#include "paths.h"
#include "qkscope/texts.h"
#include "qkscope/tokenizer.h"

namespace qkscope {
namespace {

using ::testing::HasSubstr;

Tokenizer load(const std::string& name) {
  return Tokenizer::load(source_path("tests/input/tokenizer/data/" + name + ".json"));
}

const std::string kText =
    "the cold light  of the grün river\n\nand the stone, and the light of day";

using Ids = std::vector<std::int32_t>;

TEST(EncodeChunks, CoversTheTokensOfTheText) {
  const auto tokenizer = load("gpt2");
  const auto whole = tokenizer.encode(kText).ids;
  for (const std::int64_t size : {1, 4, 7, 1000}) {
    const auto text = encode_chunks(tokenizer, kText, {.size = size}, {});
    Ids joined;
    for (std::size_t i = 0; i < text.chunks.size(); ++i) {
      const auto& ids = text.chunks[i].ids;
      EXPECT_TRUE(std::ssize(ids) == size || i + 1 == text.chunks.size());
      joined.insert(joined.end(), ids.begin(), ids.end());
    }
    EXPECT_EQ(joined, whole) << size;
    EXPECT_EQ(text.tokens, std::ssize(whole));
    EXPECT_FALSE(text.dropped);
  }
}

TEST(EncodeChunks, OverlapRepeatsTokensOfTheChunkBefore) {
  const auto tokenizer = load("gpt2");
  const auto whole = tokenizer.encode(kText).ids;
  const auto text = encode_chunks(tokenizer, kText, {.size = 6, .overlap = 2}, {});
  for (std::size_t i = 0; i < text.chunks.size(); ++i) {
    const auto& ids = text.chunks[i].ids;
    EXPECT_EQ(ids, Ids(whole.begin() + static_cast<std::ptrdiff_t>(4 * i),
                       whole.begin() + static_cast<std::ptrdiff_t>(4 * i) + std::ssize(ids)));
  }
  EXPECT_EQ(4 * (text.chunks.size() - 1) + text.chunks.back().ids.size(), whole.size());
}

TEST(EncodeChunks, EveryChunkHasTheSpecialTokensAndCountsThem) {
  for (const auto* name : {"llama3", "roberta"}) {  // one token before; one before and one after
    const auto tokenizer = load(name);
    const auto added = tokenizer.encode("").ids;
    const auto before = tokenizer.prefix_ids().size();
    const auto plain = tokenizer.encode(kText, {.add_special_tokens = false}).ids;
    const auto text = encode_chunks(tokenizer, kText, {.size = 8}, {});
    Ids joined;
    for (const auto& [ids, truncated, offsets] : text.chunks) {
      ASSERT_LE(ids.size(), 8u);
      EXPECT_EQ(Ids(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(before)),
                tokenizer.prefix_ids());
      const auto after = static_cast<std::ptrdiff_t>(added.size() - before);
      EXPECT_TRUE(std::equal(ids.end() - after, ids.end(), added.end() - after));
      joined.insert(joined.end(), ids.begin() + static_cast<std::ptrdiff_t>(before),
                    ids.end() - after);
    }
    EXPECT_EQ(joined, plain) << name;
  }
}

TEST(EncodeChunks, DropsALastChunkBelowTheLeastLength) {
  const auto tokenizer = load("gpt2");
  const std::string text = "the the the";  // "the" is one token, " the" is two
  const auto kept = encode_chunks(tokenizer, text, {.size = 3, .min_length = 2}, {});
  EXPECT_EQ(kept.chunks.size(), 2u);
  EXPECT_FALSE(kept.dropped);
  const auto cut = encode_chunks(tokenizer, text, {.size = 3, .min_length = 3}, {});
  EXPECT_EQ(cut.chunks.size(), 1u);
  EXPECT_TRUE(cut.dropped);
  EXPECT_EQ(cut.tokens, 5);
  const auto all = encode_chunks(tokenizer, "the", {.size = 3, .min_length = 2}, {});
  EXPECT_TRUE(all.chunks.empty() && all.dropped);
}

TEST(EncodeChunks, RangesCoverTheTextWithItsWhiteSpace) {
  for (const auto* name : {"gpt2", "llama3", "roberta", "mistral"}) {
    const auto text = encode_chunks(load(name), kText, {.size = 5}, {.offsets = true});
    ASSERT_EQ(text.ranges.size(), text.chunks.size()) << name;
    std::int64_t at = 0;
    for (const auto& [begin, end] : text.ranges) {
      EXPECT_EQ(begin, at) << name;
      EXPECT_GE(end, begin);
      at = end;
    }
    EXPECT_EQ(at, INT64_MAX) << name;  // the last chunk ends with the text
  }
}

TEST(EncodeChunks, RefusesContradictorySizes) {
  const auto tokenizer = load("roberta");
  const auto refused = [&](const ChunkOptions& chunk, const std::string& part) {
    EXPECT_THAT(bad_input_message([&] { encode_chunks(tokenizer, kText, chunk, {}); }),
                HasSubstr(part));
  };
  refused({.size = -1}, "chunks of -1 tokens");
  refused({.overlap = 2}, "expected a size above 0");
  refused({.size = 8, .overlap = 8}, "expected a size above 0, an overlap below the size");
  refused({.size = 8, .overlap = -1}, "with an overlap of -1");
  refused({.size = 8, .min_length = 9}, "a least length from 1 to the size");
  refused({.size = 8, .min_length = 0}, "a least length of 0");
  refused({.size = 2}, "adds 2 special tokens to each; expected chunks of at least 3 tokens");
  refused({.size = 6, .overlap = 4}, "expected chunks of at least 7 tokens");
}

}  // namespace
}  // namespace qkscope
