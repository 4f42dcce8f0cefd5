#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/io/json.h"
#include "base/io/output_file.h"
#include "paths.h"
#include "run_program.h"

namespace qkscope {
namespace {

using testing::HasSubstr;

const std::string kTokenize =
    "qkscope tokenize --tokenizer " + source_path("tests/input/tokenizer/data/llama3.json") + " ";

TEST(Tokenize, EncodesAndDecodes) {
  const auto ids = run_program(kTokenize + "--text 'the house'");
  EXPECT_EQ(ids.status, 0) << ids.err;
  const auto back = run_program(kTokenize + "--decode --no-special --text '" + ids.out + "'");
  EXPECT_EQ(back.out, "the house\n");
  EXPECT_EQ(run_program("printf 'the house' | " + kTokenize).out, ids.out);
  const TemporaryFolder folder;
  write_file(folder.file("text"), "the house");
  EXPECT_EQ(run_program(kTokenize + "--text-file " + folder.file("text")).out, ids.out);
}

TEST(Tokenize, PrintsTokensOffsetsAndJson) {
  const auto lines = run_program(kTokenize + "--text 'the' --tokens --offsets");
  EXPECT_THAT(lines.out, HasSubstr("\t<s>\t0-0\n"));
  EXPECT_THAT(lines.out, HasSubstr("\tthe\t0-3\n"));
  const auto answer =
      run_program(kTokenize + "--text 'the' --tokens --offsets --json --max-tokens 9");
  const Json json = Json::parse(answer.out);
  EXPECT_EQ(json["tokens"], (Json{"<s>", "the"}));
  EXPECT_EQ(json["offsets"][1], (Json{0, 3}));
  EXPECT_EQ(json["truncated"], false);
  const auto plain = run_program(kTokenize + "--text 'the' --no-special --json");
  EXPECT_EQ(Json::parse(plain.out)["ids"].size(), 1u);
}

TEST(Tokenize, JsonLinesKeepTheirOrder) {
  const TemporaryFolder folder;
  std::string lines;
  for (int i = 0; i < 600; ++i) lines += fmt::format("{{\"text\": \"{}\"}}\n", i);
  write_file(folder.file("in.jsonl"), lines);
  const auto encoded = run_program(kTokenize + "--no-special --jsonl " + folder.file("in.jsonl"));
  EXPECT_EQ(encoded.status, 0) << encoded.err;
  write_file(folder.file("ids.jsonl"), encoded.out);
  const auto back = run_program(kTokenize + "--decode --jsonl " + folder.file("ids.jsonl"));
  std::string expected;
  for (int i = 0; i < 600; ++i) expected += fmt::format("{{\"text\":\"{}\"}}\n", i);
  EXPECT_EQ(back.out, expected);
  write_file(folder.file("bad.jsonl"), "{\"text\": \"a\"}\n{\"txt\": \"b\"}\n");
  const auto bad = run_program(kTokenize + "--jsonl " + folder.file("bad.jsonl"));
  EXPECT_EQ(bad.status, 2);
  EXPECT_THAT(bad.err, HasSubstr("bad.jsonl: line 2"));
}

TEST(Tokenize, InvalidUtf8IsRefusedOrReplaced) {
  const auto refused = run_program("printf 'ab\\377' | " + kTokenize);
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("byte 2"));
  const auto replaced = run_program("printf 'ab\\377' | " + kTokenize + "--errors replace");
  EXPECT_EQ(replaced.status, 0) << replaced.err;
}

TEST(Tokenize, BadOptionsAreRefused) {
  EXPECT_EQ(run_program("qkscope tokenize --text x").status, 2);
  EXPECT_EQ(run_program("qkscope tokenize --tokenizer /nowhere --text x").status, 2);
  EXPECT_EQ(run_program(kTokenize + "--text x --jsonl y").status, 2);
  EXPECT_EQ(run_program(kTokenize + "--decode --text '1 x'").status, 2);
}

}  // namespace
}  // namespace qkscope
