#include <filesystem>

#include <gtest/gtest.h>

#include "base/io/folder.h"
#include "base/io/mapped_file.h"
#include "base/tables/arrow_columns.h"
#include "base/tables/parquet_stream.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

using Type = Table::Type;

Table numbered(std::int64_t begin, std::int64_t end) {
  Table table;
  table.column("row", Type::integer).column("half", Type::real).column("text", Type::text);
  for (auto i = begin; i < end; ++i)
    table.add({i, static_cast<double>(i) / 2, std::string(i % 3 == 0 ? "a, \"b\"" : "")});
  return table;
}

class GrowingTables : public testing::Test {
 protected:
  std::string bytes(const std::string& name) const {
    return std::string(MappedFile(folder_.file(name)).text());
  }
  // Writes parts that end at the given rows.
  void expect_same(const std::vector<std::int64_t>& ends) const {
    const auto whole = numbered(0, ends.back());
    whole.write_csv(folder_.file("whole.csv"));
    whole.write_parquet(folder_.file("whole.parquet"));
    std::filesystem::remove(folder_.file("parts.csv"));
    TableFileAppender table(folder_.file("parts"), true);
    std::int64_t begin = 0;
    for (const auto end : ends) {
      EXPECT_TRUE(table.append(numbered(begin, end).columns()));
      begin = end;
    }
    EXPECT_FALSE(path_exists(folder_.file("parts.csv")));
    table.finish();
    EXPECT_TRUE(bytes("parts.csv") == bytes("whole.csv"));
    EXPECT_TRUE(bytes("parts.parquet") == bytes("whole.parquet"));
  }

  TemporaryFolder folder_;
};

TEST_F(GrowingTables, AreByteIdenticalToWholeTables) {
  expect_same({0});
  expect_same({0, 5, 5, 9});
  expect_same({3, kTableRowGroup - 1, kTableRowGroup + 7});  // two row groups
}

TEST_F(GrowingTables, OtherColumnsAreRefusedAndNoFileIsLeft) {
  {
    TableFileAppender table(folder_.file("parts"), true);
    EXPECT_TRUE(table.append(numbered(0, 3).columns()));
    Table other;
    other.column("row", Type::real).column("half", Type::real).column("text", Type::text);
    EXPECT_FALSE(table.append(other.columns()));
  }
  EXPECT_TRUE(entry_names(folder_.path()).empty());
}

TEST_F(GrowingTables, HaveACsvFileOnRequest) {
  TableFileAppender table(folder_.file("parts"), false);
  EXPECT_TRUE(table.append(numbered(0, kTableRowGroup).columns()));
  Table other;
  other.column("row", Type::integer).column("other", Type::real).column("text", Type::text);
  EXPECT_FALSE(table.append(other.columns()));
  table.finish();
  EXPECT_EQ(entry_names(folder_.path()), std::vector<std::string>{"parts.parquet"});
  EXPECT_EQ(read_parquet_table(folder_.file("parts.parquet")).rows(), kTableRowGroup);
}

}  // namespace
}  // namespace qkscope
