#include <gtest/gtest.h>

#include "engine/api/generation.h"
#include "paths.h"

namespace qkscope {
namespace {

const char* const kTexts[] = {"plain words, then more", "naïve façade — 日本語 🙂🙂 end",
                              "line\n\n  indented\ttabs", "x"};

// The pieces form the text wherever the prompt ends.
TEST(IncrementalDecoder, PiecesFormTheDecodedText) {
  for (const auto* name : {"llama2", "llama3", "gpt2", "gemma"}) {
    const auto tokenizer =
        Tokenizer::load(source_path("tests/input/tokenizer/data/") + name + std::string(".json"));
    for (const std::string text : kTexts) {
      const auto ids = tokenizer.encode("Before. " + text).ids;
      const auto prompt = tokenizer.encode("Before.").ids.size();
      const auto head = std::span(ids).first(prompt);
      IncrementalDecoder stream(tokenizer, head, {});
      std::string whole = tokenizer.decode(head, true);
      for (std::size_t i = prompt; i < ids.size(); ++i) whole += stream.add_token(ids[i]);
      whole += stream.flush();
      EXPECT_EQ(whole, tokenizer.decode(ids, true)) << name;
    }
  }
}

TEST(IncrementalDecoder, StopTextEndsTheStreamAndItsPrefixIsHeldBack) {
  const auto tokenizer = Tokenizer::load(source_path("tests/input/tokenizer/data/gpt2.json"));
  const auto ids = tokenizer.encode("one two STOP three").ids;
  const std::vector<std::string> stops = {"STOP", "nowhere"};
  IncrementalDecoder stream(tokenizer, std::span(ids).first(1), stops);
  std::string given = tokenizer.decode(std::span(ids).first(1));
  for (std::size_t i = 1; i < ids.size() && !stream.stopped(); ++i)
    given += stream.add_token(ids[i]);
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(given, "one two ");
  EXPECT_EQ(stream.flush(), "");
}

TEST(IncrementalDecoder, HeldBackTextIsReturnedByFlush) {
  const auto tokenizer = Tokenizer::load(source_path("tests/input/tokenizer/data/gpt2.json"));
  const auto ids = tokenizer.encode("one two STO").ids;
  const std::vector<std::string> stops = {"STOP"};
  IncrementalDecoder stream(tokenizer, {}, stops);
  std::string given;
  for (const auto id : ids) given += stream.add_token(id);
  EXPECT_EQ(given, "one two ");
  EXPECT_FALSE(stream.stopped());
  EXPECT_EQ(given + stream.flush(), "one two STO");
}

}  // namespace
}  // namespace qkscope
