// Reads JSON Lines, JSON, CSV and plain text through open_corpus().
#include <gtest/gtest.h>

#include "base/io/checksum.h"
#include "base/io/output_file.h"
#include "error_message.h"
#include "qkscope/texts.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

class CorpusTest : public testing::Test {
 protected:
  // Returns all documents of a file with this content.
  std::vector<Document> read(const std::string& name, const std::string& content,
                             CorpusOptions options = {}) {
    write_file(folder_.file(name), content);
    options.path = folder_.file(name);
    const auto corpus = open_corpus(options);
    std::vector<Document> documents;
    for (Document document; corpus->next(document);) documents.push_back(document);
    counts_ = corpus->counts();
    columns_ = corpus->columns();
    return documents;
  }
  std::string refusal(const std::string& name, const std::string& content,
                      const CorpusOptions& options = {}) {
    return bad_input_message([&] { read(name, content, options); });
  }
  static CorpusOptions with_id() {
    CorpusOptions options;
    options.id_column = "id";
    return options;
  }

  TemporaryFolder folder_;
  Corpus::Counts counts_;
  std::vector<CorpusColumn> columns_;
};

void expect_has(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST_F(CorpusTest, ReadsJsonLines) {
  const auto documents = read("a.jsonl",
                              "{\"text\": \"one\", \"id\": 7, \"more\": {\"text\": [1]}}\n\n"
                              "{\"id\": \"x\", \"text\": \"zw\\u00f6lf\\n\"}\r\n"
                              "{\"text\": null, \"id\": 1}\n{\"text\": \"\", \"id\": 2}\n"
                              "{\"text\": \"end\", \"id\": 2.0}",
                              with_id());
  ASSERT_EQ(documents.size(), 3u);
  EXPECT_EQ(documents[0].example_key, 7);
  EXPECT_EQ(documents[1].text, "zwölf\n");
  EXPECT_EQ(documents[1].example_key, static_cast<std::int64_t>(blake2b_64("x")));
  EXPECT_EQ(documents[1].source_id, "x");
  EXPECT_EQ(documents[2].row, 4);
  EXPECT_EQ(documents[2].example_key, 2);
  EXPECT_EQ(counts_.rows, 5);
  EXPECT_EQ(counts_.null_texts, 1);
  EXPECT_EQ(counts_.empty_texts, 1);
  EXPECT_EQ(columns_.size(), 3u);
}

TEST_F(CorpusTest, IntegerTextAndMissingIdsGiveKeys) {
  const auto documents = read("a.jsonl",
                              "{\"text\": \"a\", \"id\": true}\n{\"text\": \"a\", \"id\": null}\n"
                              "{\"text\": \"a\", \"id\": 100000000000000000000}\n"
                              "{\"text\": \"a\", \"id\": [1, \"b\"]}\n",
                              with_id());
  ASSERT_EQ(documents.size(), 4u);
  EXPECT_EQ(documents[0].example_key, 1);
  EXPECT_EQ(documents[1].source_id, "None");
  EXPECT_EQ(documents[2].source_id, "100000000000000000000");
  EXPECT_EQ(documents[3].source_id, "[1,\"b\"]");
}

TEST_F(CorpusTest, ReadsJsonLists) {
  const auto documents =
      read("a.json", " [ {\"text\": \"a ] } \\\" b\"} ,\n {\"x\": [[{}]], \"text\": \"c\"}\n] ");
  ASSERT_EQ(documents.size(), 2u);
  EXPECT_EQ(documents[0].text, "a ] } \" b");
  EXPECT_EQ(documents[1].example_key, 1);
}

TEST_F(CorpusTest, ReadsCsv) {
  const auto documents = read("a.csv",
                              "\xEF\xBB\xBFid,text,other\r\n1,plain,x\r\n"
                              "b,\"with, comma\nline \"\"quoted\"\"\",\n\n3,,y\n4,last,z",
                              with_id());
  ASSERT_EQ(documents.size(), 3u);
  EXPECT_EQ(documents[0].example_key, 1);
  EXPECT_EQ(documents[1].text, "with, comma\nline \"quoted\"");
  EXPECT_EQ(documents[2].text, "last");
  EXPECT_EQ(counts_.empty_texts, 1);
}

TEST_F(CorpusTest, APlainTextFileIsOneDocument) {
  const auto documents = read("a.txt", "all\nof it\n");
  ASSERT_EQ(documents.size(), 1u);
  EXPECT_EQ(documents[0].text, "all\nof it\n");
  EXPECT_EQ(documents[0].source_id, "0");
  CorpusOptions options;
  options.id_column = "file";
  EXPECT_EQ(read("moby.dick.txt", "Call me", options)[0].source_id, "moby.dick");
}

TEST_F(CorpusTest, MaxSamplesAndShardsSelectRows) {
  std::string lines;
  for (int i = 0; i < 10; ++i) lines += fmt::format("{{\"text\": \"t{}\"}}\n", i);
  CorpusOptions options;
  options.max_samples = 8;
  options.shard_index = 1;
  options.shard_count = 3;
  const auto documents = read("a.jsonl", lines, options);
  ASSERT_EQ(documents.size(), 3u);
  EXPECT_EQ(documents[0].row, 1);
  EXPECT_EQ(documents[2].text, "t7");
  options.shard_index = 3;
  expect_has(refusal("a.jsonl", lines, options), "3/3");
}

TEST_F(CorpusTest, MalformedRowsNameFileAndLine) {
  expect_has(refusal("a.jsonl", "{\"text\": \"a\"}\n{\"text\": \n"), "a.jsonl: line 2");
  expect_has(refusal("a.jsonl", "{\"text\": \"a\"}\n[1]\n"), "line 2");
  expect_has(refusal("a.jsonl", "{\"text\": \"a\"}\n{\"text\": 5}\n"), "line 2");
  expect_has(refusal("a.json", "[{\"text\": \"a\"},\n{\"text\": \"b\"}"), "line 2");
  expect_has(refusal("a.json", "[{\"text\": \"a\"},\n"), "no end");
  expect_has(refusal("a.json", "[{\"text\": \"a\"}] x"), "more after");
  expect_has(refusal("a.json", "{\"text\": \"a\"}"), ".jsonl");
  expect_has(refusal("a.jsonl", "5\n"), "expected a JSON object");
  expect_has(refusal("a.jsonl", "{\"text\": \"a\"}\n5\n"), "line 2: expected a JSON object");
  expect_has(refusal("a.jsonl", "{\"text\": \"a\"}\n{\"text\": {}}\n"),
             "holds an object, expected a string");
  expect_has(refusal("a.jsonl", "{\"x\": 1.5}\n"), "the columns are: x");
  expect_has(refusal("a.jsonl", "{\"text\": \"a\", \"id\": 1}\n{\"text\": \"b\"}\n", with_id()),
             "'id'");
  expect_has(refusal("a.json", "[5, 6]"), "expected a JSON object");
  expect_has(refusal("a.json", "[}]"), "broken off");
  expect_has(refusal("a.json", "[{\"text\": \"a"), "a string has no end");
  expect_has(refusal("a.json", "[{\"text\": \"a\\"), "a string has no end");
  EXPECT_EQ(read("a.jsonl", "\xEF\xBB\xBF{\"text\": \"a\"}\n", {})[0].text, "a");
  expect_has(refusal("a.csv", "text,b\nx,y\nx\n"), "line 3");
  expect_has(refusal("a.csv", "text,b\n\"x,y\n"), "line 2");
  expect_has(refusal("a.csv", "text,b\n\"x\"z,y\n"), "line 2");
}

TEST_F(CorpusTest, InvalidUtf8ErrorsGiveAdvice) {
  for (const auto& message : {refusal("u.jsonl", "{\"text\": \"\xff\"}\n"),
                              refusal("u.json", "[{\"text\": \"\xff\"}]")}) {
    expect_has(message, "line 1: not UTF-8 at byte 10 of the row");
    expect_has(message, "dataset.errors=replace");
  }
}

TEST_F(CorpusTest, ZeroBytesInARowAreRejected) {
  using namespace std::string_literals;
  for (const auto& row : {"{\"text\": \"a\"}\0 {\"text\": \"lost\"}"s, "{\"text\": \"a\"\0}"s}) {
    expect_has(refusal("z.jsonl", row + "\n"), "z.jsonl: line 1: not valid JSON");
    expect_has(refusal("z.json", "[" + row + "]"), "z.json: line 1: ");
  }
}

TEST_F(CorpusTest, MissingColumnsAreListed) {
  expect_has(refusal("a.jsonl", "{\"texts\": \"a\", \"b\": 1}\n"), "b, texts");
  expect_has(refusal("a.csv", "x,tixt\n1,2\n"), "did you mean 'tixt'");
  expect_has(refusal("a.csv", "x,text\n1,2\n", with_id()), "'id'");
  expect_has(refusal("a.txt", "x", with_id()), "'id'");
}

TEST_F(CorpusTest, EmptyDatasetsAreRejected) {
  for (const char* name : {"a.jsonl", "a.csv", "a.txt"}) refusal(name, "");
  expect_has(refusal("a.json", "[]"), "no rows");
  expect_has(refusal("a.csv", "text\n"), "no rows");
  expect_has(refusal("a.jsonl", "{\"text\": null}\n{\"text\": \"\"}\n"), "none of the 2 rows");
  expect_has(refusal("a.xyz", "a"), ".parquet");
}

TEST_F(CorpusTest, InvalidUtf8IsRejectedOrReplaced) {
  CorpusOptions replace;
  replace.replace_invalid = true;
  expect_has(refusal("a.txt", "ab\xFFg"), "byte 2");
  EXPECT_EQ(read("a.txt", "ab\xFFg", replace)[0].text, "ab\uFFFDg");
  expect_has(refusal("a.csv", "text\nab\xE4\n"), "line 2");
  EXPECT_EQ(read("a.csv", "text\nab\xE4\n", replace)[0].text, "ab\uFFFD");
  expect_has(refusal("a.jsonl", "{\"text\": \"a\xFF\"}\n"), "line 1");
  EXPECT_EQ(read("a.jsonl", "{\"text\": \"a\xFF\"}\n", replace)[0].text, "a\uFFFD");
}

}  // namespace
}  // namespace qkscope
