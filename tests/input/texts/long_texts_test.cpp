// Datasets of long texts: filtering, truncation and the output files.
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/io/json.h"
#include "base/io/mapped_file.h"
#include "base/io/output_file.h"
#include "error_message.h"
#include "paths.h"
#include "qkscope/texts.h"
#include "qkscope/tokenizer.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

using ::testing::HasSubstr;

class LongTextsTest : public testing::Test {
 protected:
  LongTextsTest()
      : tokenizer_(Tokenizer::load(source_path("tests/input/tokenizer/data/gpt2.json"))) {}

  std::string file(const std::string& name) const { return folder_.file(name); }

  // Texts of 1, 5 and 5 tokens ("the" is one token, " the" is two), an empty and a null one.
  void write_source() {
    write_file(file("in.jsonl"),
               "{\"id\": 10, \"text\": \"the\"}\n{\"id\": 11, \"text\": \"the the the\"}\n"
               "{\"id\": 12, \"text\": \"\"}\n{\"id\": 13, \"text\": null}\n"
               "{\"id\": \"x\", \"text\": \"the the the\"}\n");
  }

  LongTextResult make(LongTextOptions options, bool ids = true) {
    CorpusOptions corpus;
    corpus.path = file("in.jsonl");
    if (ids) corpus.id_column = "id";
    options.quiet = true;
    if (options.out.empty()) options.out = file("out.jsonl");
    return write_long_texts(*open_corpus(corpus), tokenizer_, options);
  }

  std::vector<Json> rows(const std::string& name = "out.jsonl") const {
    std::vector<Json> list;
    const MappedFile mapped(file(name));
    std::string text(mapped.text());
    for (std::size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
      list.push_back(Json::parse(text.substr(at, end - at)));
    return list;
  }

  TemporaryFolder folder_;
  Tokenizer tokenizer_;
};

TEST_F(LongTextsTest, KeepsLongEnoughTextsWithTheirIds) {
  write_source();
  const auto result = make({.min_tokens = 5});
  EXPECT_TRUE(result.finished);
  EXPECT_EQ(result.read, 3);
  EXPECT_EQ(result.kept, 2);
  EXPECT_EQ(result.too_short, 1);
  EXPECT_EQ(result.longest, 1);
  EXPECT_EQ(result.tokens, 10);
  const auto kept = rows();
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept[0], (Json{{"id", 11}, {"text", "the the the"}, {"tokens", 5}}));
  EXPECT_EQ(kept[1]["id"], "x");
  make({.keep = 1});
  EXPECT_EQ(rows().size(), 1u);
  make({.min_tokens = 5}, false);
  EXPECT_EQ(rows()[0]["id"], 1);  // the row number, without an id column
}

TEST_F(LongTextsTest, TruncatesLongTextsAtTokenBoundaries) {
  write_source();
  const auto result = make({.min_tokens = 2, .max_tokens = 3});
  EXPECT_EQ(result.kept, 2);
  EXPECT_EQ(result.cut, 2);
  EXPECT_EQ(rows()[0]["text"], "the the");
  EXPECT_EQ(rows()[0]["tokens"], 3);
  EXPECT_THAT(bad_input_message([&] { make({.min_tokens = 4, .max_tokens = 3}); }),
              HasSubstr("a cut that leaves enough"));
}

TEST_F(LongTextsTest, WritesOneRowPerChunk) {
  write_source();
  const auto result = make({.chunk = {.size = 3, .min_length = 2}});
  EXPECT_EQ(result.kept, 2);
  EXPECT_EQ(result.rows, 4);
  EXPECT_EQ(result.too_short, 1);  // the text of one token
  EXPECT_EQ(result.dropped_chunks, 1);
  EXPECT_EQ(result.tokens, 10);
  const auto made = rows();
  ASSERT_EQ(made.size(), 4u);
  EXPECT_EQ(made[0], (Json{{"id", "11#0"}, {"text", "the the"}, {"tokens", 3}}));
  EXPECT_EQ(made[1], (Json{{"id", "11#1"}, {"text", " the"}, {"tokens", 2}}));
  EXPECT_EQ(made[3]["id"], "x#1");
  make({.out = file("out.parquet"), .chunk = {.size = 2, .overlap = 1}}, false);
  CorpusOptions options;
  options.path = file("out.parquet");
  options.id_column = "id";
  const auto corpus = open_corpus(options);
  std::vector<std::string> ids;
  for (Document document; corpus->next(document);) ids.push_back(document.source_id);
  EXPECT_THAT(ids,
              testing::ElementsAre("0#0", "1#0", "1#1", "1#2", "1#3", "4#0", "4#1", "4#2", "4#3"));
  EXPECT_THAT(bad_input_message([&] { make({.max_tokens = 9, .chunk = {.size = 3}}); }),
              HasSubstr("expected one of the two"));
}

TEST_F(LongTextsTest, ChunksJoinToTheText) {
  const std::string text = "the grün\n\n the  ünd and the tail ";
  write_file(file("in.jsonl"), Json{{"id", 1}, {"text", text}}.dump() + "\n");
  make({.chunk = {.size = 3}});
  std::string joined;
  for (const auto& row : rows()) joined += row["text"];
  EXPECT_EQ(joined, text);
}

TEST_F(LongTextsTest, ParquetOutputSurvivesARoundTrip) {
  write_file(file("in.jsonl"),
             "{\"id\": 10, \"text\": \"the the\"}\n{\"id\": -3, \"text\": \"grün the\"}\n");
  make({.out = file("out.parquet")});
  CorpusOptions options;
  options.path = file("out.parquet");
  options.id_column = "id";
  const auto corpus = open_corpus(options);
  Document document;
  ASSERT_TRUE(corpus->next(document));
  EXPECT_EQ(document.text, "the the");
  EXPECT_EQ(document.example_key, 10);
  ASSERT_TRUE(corpus->next(document));
  EXPECT_EQ(document.text, "grün the");
  EXPECT_EQ(document.example_key, -3);
  EXPECT_FALSE(corpus->next(document));
  const std::string first(MappedFile(file("out.parquet")).text());
  make({.out = file("again.parquet")});
  EXPECT_EQ(MappedFile(file("again.parquet")).text(), first);
}

TEST_F(LongTextsTest, ErrorsLeaveNoFile) {
  write_source();
  const auto refused = [&](const LongTextOptions& options, const std::string& part) {
    EXPECT_THAT(bad_input_message([&] { make(options); }), HasSubstr(part));
  };
  refused({.min_tokens = 9}, "none of 3 texts has 9 tokens; the longest has 5");
  refused({.out = file("out.csv")}, "ends in .parquet or .jsonl");
  refused({.out = file("no/such/out.jsonl")}, "no/such");
  refused({.out = file("out.parquet")}, "write a .jsonl file");
  refused({.out = file("out.jsonl"), .id_column = "text"}, "a column named 'text'");
  const std::atomic<bool> stop{true};
  EXPECT_FALSE(make({.stop = &stop}).finished);
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
    EXPECT_EQ(entry.path().filename(), "in.jsonl");
}

}  // namespace
}  // namespace qkscope
