#include <cstdio>
#include <string>

#include <gtest/gtest.h>

#include "qkscope/experimental/log.h"
#include "qkscope/experimental/text.h"

namespace qkscope {
namespace {

std::string content(std::FILE* file) {
  std::rewind(file);
  std::string text;
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
  return text;
}

TEST(Progress, PrintsPlainLinesToAFile) {
  std::FILE* file = std::tmpfile();
  {
    Progress progress({.what = "capture", .unit = "examples", .total = 4, .out = file});
    progress.update(4, "10 tokens/s");
  }
  EXPECT_EQ(content(file), "capture: 4/4 examples, 10 tokens/s\n");
  std::fclose(file);
}

TEST(Progress, QuietPrintsNothing) {
  std::FILE* file = std::tmpfile();
  {
    Progress progress({.what = "x", .unit = "y", .quiet = true, .out = file});
    progress.update(3);
  }
  EXPECT_EQ(content(file), "");
  std::fclose(file);
}

TEST(Progress, DurationsUseTwoUnits) {
  EXPECT_EQ(format_duration(42.4), "42 s");
  EXPECT_EQ(format_duration(190), "3 min 10 s");
  EXPECT_EQ(format_duration(7500), "2 h 05 min");
}

}  // namespace
}  // namespace qkscope
