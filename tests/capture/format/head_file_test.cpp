#include <filesystem>

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <parquet/arrow/reader.h>

#include "base/core/error.h"
#include "base/io/mapped_file.h"
#include "base/io/output_file.h"
#include "capture/format/head_writer.h"
#include "capture/format/layout.h"
#include "capture/format/metadata.h"
#include "complaint.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

HeadRows some_rows(int count, int dim) {
  HeadRows rows;
  rows.head_dim = dim;
  for (int i = 0; i < count; ++i) {
    rows.bucket.push_back(i / 4);
    rows.example_id.push_back(-5 + i / 7);
    rows.position.push_back(3 * i);
    for (int j = 0; j < dim; ++j) rows.vectors.push_back(0.25F * static_cast<float>(i * dim + j));
  }
  return rows;
}

std::string written(const TemporaryFolder& folder, const HeadRows& rows) {
  std::string path = folder.file("data.parquet");
  write_head_file(path, rows, {});
  return path;
}

TEST(HeadId, ConvertsToFolderNamesAndBack) {
  EXPECT_EQ(head_folder_name({3, 12, HeadKind::query}), "l03h12q");
  EXPECT_EQ(head_folder_name({103, 7, HeadKind::key}), "l103h07k");
  EXPECT_EQ(parse_head_folder_name("l103h07k"), (HeadId{103, 7, HeadKind::key}));
  for (const char* wrong :
       {"", "l", "l0", "l00h", "l00h00", "l00h00x", "x00h00q", "l-1h00q", "l00h00qq"})
    EXPECT_FALSE(parse_head_folder_name(wrong)) << wrong;
}

TEST(HeadFile, ReadsBackWhatWasWritten) {
  const TemporaryFolder folder;
  auto rows = some_rows(23, 6);
  rows.sliding_window = 512;
  const Metadata metadata = {{metadata::kModel, "m"}, {metadata::kRope, metadata::kRopeNone}};
  const std::string path = folder.file("l00h00q/data.parquet");
  write_head_file(path, rows, metadata);
  const HeadFile file = read_head_file(path);
  EXPECT_EQ(file.rows.head_dim, 6);
  EXPECT_EQ(file.rows.bucket, rows.bucket);
  EXPECT_EQ(file.rows.example_id, rows.example_id);
  EXPECT_EQ(file.rows.position, rows.position);
  EXPECT_EQ(file.rows.vectors, rows.vectors);
  EXPECT_EQ(file.rows.sliding_window, 512);
  EXPECT_EQ(file.metadata, metadata);
  EXPECT_EQ(read_head_metadata(path), metadata);
}

TEST(HeadFile, HasTheSchemaOfTheCaptureFormat) {
  const TemporaryFolder folder;
  auto rows = some_rows(3, 4);
  rows.token_str = {"a", "b,", "\n"};
  rows.example_key = {1, 2, 3};
  const auto file = arrow::io::ReadableFile::Open(written(folder, rows)).ValueOrDie();
  const auto reader = parquet::arrow::OpenFile(file, arrow::default_memory_pool()).ValueOrDie();
  std::shared_ptr<arrow::Schema> schema;
  ASSERT_TRUE(reader->GetSchema(&schema).ok());
  EXPECT_EQ(schema->ToString(false),
            "bucket: int32\nexample_id: int32\nposition: int32\n"
            "vector: fixed_size_list<element: float>[4]\nsliding_window: int32\ntoken_str: string\n"
            "example_key: int64");
}

TEST(HeadFile, ReadsBackTokenStrings) {
  const TemporaryFolder folder;
  auto rows = some_rows(5000, 2);  // more than one read batch
  for (int i = 0; i < 5000; ++i)
    rows.token_str.push_back(i % 3 == 0 ? "" : fmt::format("Ġ{}\n", i));
  EXPECT_EQ(read_head_file(written(folder, rows)).rows.token_str, rows.token_str);
  rows.token_str.clear();
  EXPECT_TRUE(read_head_file(written(folder, rows)).rows.token_str.empty());
}

TEST(HeadFile, BytesDoNotDependOnAppendCalls) {
  const TemporaryFolder folder;
  auto rows = some_rows(50, 4);
  for (std::int64_t i = 0; i < 50; ++i) rows.example_key.push_back((i / 7) << 40);
  const auto write = [&](const std::string& name, std::size_t chunk) {
    HeadWriterOptions options;
    options.head_dim = 4;
    options.row_group_size = 16;
    options.example_keys = true;
    HeadWriter writer(folder.file(name), options);
    for (std::size_t i = 0; i < 50; i += chunk) {
      const auto n = std::min<std::size_t>(chunk, 50 - i);
      const auto all = as_head_rows_view(rows);
      writer.append({all.bucket.subspan(i, n),
                     all.example_id.subspan(i, n),
                     all.position.subspan(i, n),
                     all.vectors.subspan(4 * i, 4 * n),
                     {},
                     {},
                     all.example_key.subspan(i, n)});
    }
    writer.finish();
    return std::string(MappedFile(folder.file(name)).text());
  };
  const std::string whole = write("whole", 50);
  EXPECT_EQ(write("single", 1), whole);
  EXPECT_EQ(write("sevens", 7), whole);
  EXPECT_EQ(read_head_file(folder.file("whole")).rows.vectors, rows.vectors);
}

TEST(HeadFile, RemovesTheTemporaryFileUnlessFinished) {
  const TemporaryFolder folder;
  {
    HeadWriterOptions options;
    options.head_dim = 4;
    HeadWriter writer(folder.file("data.parquet"), options);
    writer.append(as_head_rows_view(some_rows(5, 4)));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(HeadFile, NamesTheRowWithNanOrInfinity) {
  const TemporaryFolder folder;
  auto rows = some_rows(9, 4);
  rows.vectors[4 * 6 + 2] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(complaint(written(folder, rows)),
              AllOf(HasSubstr("data.parquet"), HasSubstr("row 6"), HasSubstr("vector[2] is nan")));
  rows.vectors[4 * 6 + 2] = -std::numeric_limits<float>::infinity();
  EXPECT_THAT(complaint(written(folder, rows)), HasSubstr("vector[2] is -inf"));
}

TEST(HeadFile, NamesDuplicateRows) {
  const TemporaryFolder folder;
  auto rows = some_rows(9, 4);
  rows.example_id[8] = rows.example_id[2];
  rows.position[8] = rows.position[2];
  EXPECT_THAT(complaint(written(folder, rows)),
              AllOf(HasSubstr("rows 2 and 8"), HasSubstr("position 6")));
}

TEST(HeadFile, FindsDuplicatesWhenExamplesDescend) {
  const TemporaryFolder folder;
  auto rows = some_rows(6, 4);
  rows.example_id = {4, 7, 3, 3, 9, 7};
  EXPECT_EQ(read_head_file(written(folder, rows)).rows.example_id, rows.example_id);
  rows.position[5] = rows.position[1];
  EXPECT_THAT(complaint(written(folder, rows)), HasSubstr("rows 1 and 5 are both example 7"));
}

TEST(HeadFile, DistinguishesExamplesOfEqualIdByKey) {
  const TemporaryFolder folder;
  auto rows = some_rows(9, 4);
  rows.example_id[8] = rows.example_id[2];
  rows.position[8] = rows.position[2];
  rows.example_key.assign(rows.example_id.begin(), rows.example_id.end());
  rows.example_key[8] += std::int64_t{1} << 32;
  const auto read = read_head_file(written(folder, rows)).rows;
  EXPECT_EQ(read.example_key, rows.example_key);
  EXPECT_NE(read.example(2), read.example(8));
}

TEST(HeadFile, AcceptsRowsInAnyOrder) {
  const TemporaryFolder folder;
  auto rows = some_rows(9, 4);
  std::reverse(rows.position.begin(), rows.position.end());
  EXPECT_EQ(read_head_file(written(folder, rows)).rows.position, rows.position);
}

TEST(HeadFile, RefusesATruncatedFile) {
  const TemporaryFolder folder;
  const std::string path = written(folder, some_rows(900, 16));
  const std::string whole(MappedFile(path).text());
  for (const std::size_t keep :
       {std::size_t{0}, std::size_t{3}, whole.size() / 2, whole.size() - 1}) {
    write_file(path, whole.substr(0, keep));
    EXPECT_THAT(complaint(path), AllOf(HasSubstr("data.parquet"), HasSubstr("Parquet")));
  }
}

TEST(HeadFile, RefusesDamagedPages) {
  const TemporaryFolder folder;
  const std::string path = written(folder, some_rows(900, 16));
  const std::string whole(MappedFile(path).text());
  int refused = 0;
  for (std::size_t at = 40; at < whole.size(); at += whole.size() / 97 + 1) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x5a);
    write_file(path, damaged);
    try {
      read_head_file(path);  // a flipped bit may change a value, but must not crash
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_input) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 10);
}

TEST(HeadFile, NamesAMissingFile) {
  const TemporaryFolder folder;
  EXPECT_THAT(complaint(folder.file("none.parquet")), HasSubstr("no such file"));
  write_file(folder.file("text.parquet"), "position,vector\n1,2\n");
  EXPECT_THAT(complaint(folder.file("text.parquet")), HasSubstr("not a readable Parquet file"));
}

}  // namespace
}  // namespace qkscope
