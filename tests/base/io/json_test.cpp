#include "base/io/json.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "base/core/error.h"
#include "base/io/output_file.h"
#include "error_message.h"
#include "qkscope/experimental/text.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

TEST(Json, ErrorsNameFileAndPlace) {
  try {
    parse_json("{\n  \"a\": 1,\n  oops\n}", "config.json");
    FAIL() << "broken JSON was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    EXPECT_NE(std::string(error.what()).find("config.json: not valid JSON at line 3"),
              std::string::npos)
        << error.what();
  }
}

TEST(Json, RepeatedKeysAreRefusedOnRequest) {
  const std::string text = R"({"a": {"x": 1}, "b": {"x": 2}, "a": 3})";
  EXPECT_EQ(parse_json(text, "f.json")["a"], 3);
  EXPECT_EQ(parse_json(R"({"a": {"x": 1}, "x": 2})", "f.json", DuplicateKeyPolicy::refuse)["x"], 2);
  try {
    parse_json(text, "f.json", DuplicateKeyPolicy::refuse);
    FAIL() << "a repeated key was accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "f.json: the key \"a\" appears twice in one object");
  }
}

TEST(Json, AZeroByteIsAnError) {
  EXPECT_THROW(parse_json(std::string_view("{}\0oops", 7), "f.json"), Error);
  EXPECT_EQ(parse_json(R"("\u0000")", "f.json").get<std::string>().size(), 1u);
}

// Millions of empty lists would need gigabytes of memory.
TEST(Json, ManyValuesAreRefused) {
  std::string text = "[";
  for (int i = 0; i < 2'100'000; ++i) text += "[],";
  const auto message = bad_input_message([&] { parse_json(text + "[]]", "many.json"); });
  EXPECT_EQ(message, "many.json: JSON of more than 4000000 values");
}

TEST(Json, DeepNestingIsRefused) {
  EXPECT_THROW(parse_json(std::string(100000, '['), "deep.json"), Error);
}

TEST(Json, NumbersOutOfRangeAndLargeFilesAreRefused) {
  EXPECT_NE(bad_input_message([] {
              parse_json("1e999", "f.json");
            }).find("f.json: not valid JSON: [json.exception.out_of_range.406]"),
            std::string::npos);
  EXPECT_NO_THROW(check_json("{}", "f.json"));
  const TemporaryFolder folder;
  const auto path = folder.file("large.json");
  write_file(path, "");
  std::filesystem::resize_file(path, (256 << 20) + 1);  // sparse
  EXPECT_EQ(bad_input_message([&] { load_json(path); }),
            path + ": JSON of 256.0 MiB, expected at most 256.0 MiB");
}

}  // namespace
}  // namespace qkscope
