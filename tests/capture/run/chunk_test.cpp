// Captures of long texts in chunks: ids, positions, resumed runs, shards and the dry run.
#include <set>

#include <gmock/gmock.h>

#include "base/io/checksum.h"
#include "kill_points.h"
#include "qkscope/captures.h"
#include "qkscope/tables.h"

namespace qkscope {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Two books and a short text between them; every byte is a token.
class ChunkedCapture : public CaptureFixture {
 protected:
  void SetUp() override {
    CaptureFixture::SetUp();
    const auto book = [](const char* id, int words) {
      std::string text;
      for (int i = 0; i < words; ++i) text += fmt::format("word {} ", i * i);
      return Json{{"id", id}, {"text", text.substr(0, 6 * static_cast<std::size_t>(words))}}.dump();
    };
    write_text(file("docs.jsonl"),
               book("a", 55) + "\n" + book("note", 1) + "\n" + book("b", 100) + "\n");
  }

  static constexpr char kEveryPosition[] = "--set capture.sampler.type=all ";

  // 330 and 600 tokens in chunks of 100: the last chunk of "a" has 30 tokens, that of "note" six.
  static std::string chunks(int least = 20) {
    return fmt::format("{}--set tokenizer.chunk=100 --set tokenizer.chunk_min={} ", kEveryPosition,
                       least);
  }

  std::vector<std::string> source_ids(const std::string& root) const {
    const auto table = read_parquet_table(file(root + "/examples.parquet"));
    return table.find("source_id")->texts;
  }
};

TEST_F(ChunkedCapture, NamesChunksAndRestartsPositions) {
  const auto outcome =
      run_program(fmt::format("qkscope capture --config {} --set output.data_root={} {}",
                              file("run.yaml"), file("out"), chunks()));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("1 last chunks of texts have fewer than 20 tokens"));
  EXPECT_THAT(source_ids("out"),
              ElementsAre("a#0", "a#1", "a#2", "a#3", "b#0", "b#1", "b#2", "b#3", "b#4", "b#5"));
  const auto examples = read_parquet_table(file("out/examples.parquet"));
  EXPECT_THAT(examples.find("tokens")->integers,
              ElementsAre(100, 100, 100, 30, 100, 100, 100, 100, 100, 100));
  // The key is the hash of the id, as for a dataset with the ids of the chunks.
  EXPECT_EQ(examples.find("example_key")->integers[2],
            static_cast<std::int64_t>(blake2b_64("a#2")));
  std::map<std::int64_t, std::vector<std::int32_t>> positions;
  const auto rows = read_head_file(file("out/l00h00q/data.parquet")).rows;
  for (std::size_t i = 0; i < rows.position.size(); ++i)
    positions[rows.example_key[i]].push_back(rows.position[i]);
  for (std::size_t e = 0; e < 10; ++e) {
    const auto& found = positions[examples.find("example_key")->integers[e]];
    ASSERT_EQ(std::ssize(found), examples.find("tokens")->integers[e]);
    EXPECT_EQ(found.front(), 0);
    EXPECT_EQ(found.back(), std::ssize(found) - 1);
  }
}

TEST_F(ChunkedCapture, EqualsACaptureOfTheChunksAsTexts) {
  ASSERT_EQ(capture("out", chunks()).status, 0);
  const auto made = run_program(fmt::format(
      "qkscope dataset {} --id-column id --tokenizer {} --chunk 100 --min-length 20 --out {}",
      file("docs.jsonl"), tiny_checkpoint(), file("chunks.parquet")));
  ASSERT_EQ(made.status, 0) << made.err;
  const auto options = kEveryPosition + ("--set dataset.path=" + file("chunks.parquet"));
  ASSERT_EQ(capture("texts", options).status, 0);
  const auto first = read_head_file(file("out/l00h00q/data.parquet")).rows;
  const auto second = read_head_file(file("texts/l00h00q/data.parquet")).rows;
  EXPECT_EQ(first.example_key, second.example_key);
  EXPECT_EQ(first.position, second.position);
  EXPECT_EQ(first.vectors, second.vectors);
  EXPECT_EQ(source_ids("out"), source_ids("texts"));
}

TEST_F(ChunkedCapture, BatchesShardsAndDevicesGiveTheSameBytes) {
  ASSERT_EQ(capture("whole", chunks()).status, 0);
  const auto expected = contents("whole");
  for (const std::string options : {"--set inference.batch_size=3", "--device cpu,cpu"}) {
    ASSERT_EQ(capture("again", chunks() + options).status, 0);
    expect_same("again", expected);
    std::filesystem::remove_all(file("again"));
  }
  for (int shard = 0; shard < 2; ++shard) {
    const auto part = capture("shards", chunks() + fmt::format("--shard {}/2", shard));
    ASSERT_EQ(part.status, 0) << part.err;
  }
  ASSERT_EQ(run_program("qkscope merge --quiet " + file("shards")).status, 0);
  expect_same("shards", expected);
}

TEST_F(ChunkedCapture, ResumesInsideABookToTheSameBytes) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer refuses a library loaded before its own";
  std::string texts;
  for (const char* id : {"a", "b", "c"})
    texts += Json{{"id", id}, {"text", std::string(700, *id)}}.dump() + "\n" +
             Json{{"id", fmt::format("short {}", id)}, {"text", "x"}}.dump() + "\n";
  write_text(file("docs.jsonl"), texts);  // a segment has 64 examples
  const std::string options =
      "--set tokenizer.chunk=10 --set tokenizer.chunk_overlap=2 --set tokenizer.chunk_min=3";
  ASSERT_EQ(capture("expected", options).status, 0);
  EXPECT_EQ(source_ids("expected").size(), 3 * 88u);
  const auto expected = contents("expected");
  kill_and_resume(command("out", options), std::filesystem::canonical(file("")).string(),
                  {{'s', "/journal.jsonl", 1}, {'s', "/journal.jsonl", 3}, {'r', "00000002.seg"}},
                  [&] {
                    expect_same("out", expected);
                    std::filesystem::remove_all(file("out"));
                  });
}

TEST_F(ChunkedCapture, DryRunCountsTheChunksOfTheRun) {
  const auto plan = Json::parse(capture("none", chunks(50) + "--dry-run --json").out);
  EXPECT_EQ(plan["examples"], 9);
  EXPECT_EQ(plan["tokens"], 900);
  EXPECT_EQ(plan["longest"], 100);
  EXPECT_EQ(plan["dropped_chunks"], 2);
  const auto result = Json::parse(capture("out", chunks(50) + "--json").out);
  EXPECT_EQ(result["examples"], 9);
  EXPECT_EQ(result["rows"], plan["rows"]);
  EXPECT_THAT(capture("none", chunks(50) + "--dry-run").out,
              HasSubstr("examples   9, 900 tokens, in chunks of 100, 2 shorter than 50 dropped"));
  EXPECT_FALSE(std::filesystem::exists(file("none")));
}

TEST_F(ChunkedCapture, RowNumbersSeedTheKeysWithIdsRow) {
  ASSERT_EQ(capture("out", chunks() + "--ids row").status, 0);
  const auto examples = read_parquet_table(file("out/examples.parquet"));
  EXPECT_EQ(examples.find("source_id")->texts[4], "b#0");
  EXPECT_EQ(examples.find("example_key")->integers[4],
            static_cast<std::int64_t>(blake2b_64("2#0")));
}

TEST_F(ChunkedCapture, RefusesWhatCannotBe) {
  const auto refused = [&](const std::string& options, const std::string& part) {
    const auto outcome = capture("out", options);
    EXPECT_EQ(outcome.status, 2) << options;
    EXPECT_THAT(outcome.err, HasSubstr(part)) << options;
    EXPECT_FALSE(std::filesystem::exists(file("out/_saver_state.json"))) << options;
  };
  refused("--set tokenizer.max_length=9000 --set tokenizer.chunk=8193",
          "tokenizer.chunk is 8193, and the context of");
  write_text(file("short.jsonl"), Json{{"id", 1}, {"text", "short"}}.dump() + "\n");
  refused("--set tokenizer.chunk=100 --set tokenizer.chunk_min=50 --set dataset.path=" +
              file("short.jsonl"),
          "none of the 1 texts has 50 tokens (tokenizer.chunk_min)");
  ASSERT_EQ(capture("out", chunks()).status, 0);
  const auto other = capture("out", "--set tokenizer.chunk=50");
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr("tokenizer.chunk"));
}

}  // namespace
}  // namespace qkscope
