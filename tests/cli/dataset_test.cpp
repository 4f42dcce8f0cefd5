#include <filesystem>

#include <gmock/gmock.h>

#include "base/io/json.h"
#include "base/io/mapped_file.h"
#include "base/io/output_file.h"
#include "paths.h"
#include "run_program.h"

namespace qkscope {
namespace {

using testing::HasSubstr;

const std::string kTokenizer =
    " --tokenizer " + source_path("tests/input/tokenizer/data/gpt2.json");

TEST(Dataset, ShowsRowsColumnsAndTokenLengths) {
  const TemporaryFolder folder;
  write_file(folder.file("a.jsonl"),
             "{\"text\": \"the\", \"id\": 1}\n{\"text\": \"the the the\", \"id\": 2}\n"
             "{\"text\": null, \"id\": 3}\n{\"text\": \"\", \"id\": 4}\n");
  const std::string command = "qkscope dataset " + folder.file("a.jsonl") + kTokenizer;
  const auto shown = run_program(command);
  EXPECT_EQ(shown.status, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("id (int64), text (string)"));
  EXPECT_THAT(shown.out, HasSubstr("1 null and 1 empty texts skipped"));
  const Json json = Json::parse(run_program(command + " --json").out);
  EXPECT_EQ(json["rows"], 4);
  EXPECT_EQ(json["documents"], 2);
  EXPECT_EQ(json["tokens"]["total"], 1 + 5);  // "the" is a token, " the" is two
  const Json bins =
      Json::parse(R"([{"from": 1, "to": 2, "count": 1}, {"from": 2, "to": 4, "count": 0},
                                    {"from": 4, "to": 8, "count": 1}])");
  EXPECT_EQ(json["tokens"]["histogram"], bins);
  const Json part = Json::parse(run_program(command + " --json --limit 3 --shard 1/2").out);
  EXPECT_EQ(part["rows"], 1);
  EXPECT_EQ(Json::parse(run_program(command + " --json --max-tokens 2").out)["tokens"]["truncated"],
            1);
}

TEST(Dataset, WritesLongTexts) {
  const TemporaryFolder folder;
  write_file(folder.file("a.jsonl"),
             "{\"text\": \"the\", \"id\": 1}\n{\"text\": \"the the the\", \"id\": 2}\n"
             "{\"text\": null, \"id\": 3}\n");
  const std::string command = "qkscope dataset " + folder.file("a.jsonl") + " --id-column id";
  const std::string out = " --out " + folder.file("long.parquet") + " --min-tokens 2";
  const auto made = run_program(command + kTokenizer + out);
  EXPECT_EQ(made.status, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("1 of 2 texts, 5 tokens"));
  EXPECT_THAT(made.out, HasSubstr("1 with fewer than 2 tokens, the longest with 1; 1 null"));
  const Json shown = Json::parse(
      run_program("qkscope dataset " + folder.file("long.parquet") + kTokenizer + " --json").out);
  EXPECT_EQ(shown["documents"], 1);
  EXPECT_EQ(shown["tokens"]["total"], 5);
  const Json said = Json::parse(run_program(command + kTokenizer + out + " --json").out);
  EXPECT_EQ(said["kept"], 1);
  EXPECT_EQ(said["too_short"], 1);
  const auto refused = [&](const std::string& options, const std::string& part) {
    const auto outcome = run_program(command + options);
    EXPECT_EQ(outcome.status, 2) << options;
    EXPECT_THAT(outcome.err, HasSubstr(part)) << options;
  };
  refused(out, "--tokenizer is missing");
  refused(kTokenizer + " --min-tokens 3", "--out");
  refused(kTokenizer + " --out " + folder.file("long.txt"), ".parquet or .jsonl");
  refused(kTokenizer + out + "00", "none of 2 texts has 200 tokens");
}

TEST(Dataset, CutsTextsIntoChunks) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.file("books"));
  write_file(folder.file("books/first.txt"), "the the the");  // five tokens
  write_file(folder.file("books/second.txt"), "the the");     // three tokens
  const std::string command = "qkscope dataset " + folder.file("books") + " --id-column file";
  const std::string chunks = kTokenizer + " --chunk 2 --min-length 2";
  const auto shown = run_program(command + chunks);
  EXPECT_EQ(shown.status, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("chunks     3, 2 shorter dropped"));
  const Json lengths = Json::parse(run_program(command + chunks + " --json").out);
  EXPECT_EQ(lengths["chunks"], 3);
  EXPECT_EQ(lengths["dropped_chunks"], 2);
  EXPECT_EQ(lengths["tokens"]["max"], 2);
  const std::string out = " --out " + folder.file("chunks.jsonl");
  const auto made = run_program(command + chunks + out);
  EXPECT_EQ(made.status, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("2 of 2 texts"));
  EXPECT_THAT(made.out, HasSubstr("chunks     3, 2 with fewer than 2 tokens dropped"));
  const std::string text(MappedFile(folder.file("chunks.jsonl")).text());
  EXPECT_THAT(text, HasSubstr(R"({"file":"first#1",)"));
  EXPECT_THAT(text, HasSubstr(R"({"file":"second#0",)"));
  const auto refused = [&](const std::string& options, const std::string& part) {
    const auto outcome = run_program(command + options + out);
    EXPECT_EQ(outcome.status, 2) << options;
    EXPECT_THAT(outcome.err, HasSubstr(part)) << options;
  };
  refused(" --chunk 2", "--tokenizer is missing");
  refused(kTokenizer + " --chunk 0", "--chunk");
  refused(kTokenizer + " --chunk -3", "--chunk");
  refused(kTokenizer + " --chunk 4 --overlap 4", "an overlap below the size");
  refused(kTokenizer + " --chunk 4 --min-length 5", "a least length from 1 to the size");
  refused(kTokenizer + " --chunk 4 --max-tokens 2", "--max-tokens");
  refused(kTokenizer + " --overlap 1", "--chunk");
  refused(kTokenizer + " --chunk 9 --min-length 9", "none of 2 texts has 9 tokens");
}

TEST(Dataset, BadInputIsRefused) {
  const TemporaryFolder folder;
  write_file(folder.file("a.csv"), "body\nx\n");
  const auto column = run_program("qkscope dataset " + folder.file("a.csv"));
  EXPECT_EQ(column.status, 2);
  EXPECT_THAT(column.err, HasSubstr("the columns are: body"));
  EXPECT_EQ(run_program("qkscope dataset " + folder.file("none")).status, 2);
  EXPECT_EQ(run_program("qkscope dataset " + folder.path()).status, 2);
  EXPECT_EQ(run_program("qkscope dataset " + folder.file("a.csv") + " --shard 2").status, 2);
}

}  // namespace
}  // namespace qkscope
