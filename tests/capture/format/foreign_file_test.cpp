// Head files written by other programs.
#include <arrow/api.h>
#include <arrow/io/file.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <parquet/arrow/writer.h>

#include "base/core/error.h"
#include "base/io/output_file.h"
#include "capture/format/metadata.h"
#include "complaint.h"
#include "error_message.h"
#include "qkscope/captures.h"
#include "qkscope/tables.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::shared_ptr<arrow::Array> ints(const std::vector<std::int32_t>& values) {
  arrow::Int32Builder builder;
  EXPECT_TRUE(builder.AppendValues(values).ok());
  return builder.Finish().ValueOrDie();
}

// A list column with rows of the given lengths; a negative length is a null row.
std::shared_ptr<arrow::Array> lists(const std::vector<int>& lengths) {
  arrow::ListBuilder builder(arrow::default_memory_pool(), std::make_shared<arrow::FloatBuilder>());
  auto& values = static_cast<arrow::FloatBuilder&>(*builder.value_builder());
  for (const int length : lengths) {
    EXPECT_TRUE((length < 0 ? builder.AppendNull() : builder.Append()).ok());
    for (int j = 0; j < length; ++j) EXPECT_TRUE(values.Append(static_cast<float>(j)).ok());
  }
  return builder.Finish().ValueOrDie();
}

struct Columns {
  std::shared_ptr<arrow::Array> bucket = ints({0, 0, 1});
  std::shared_ptr<arrow::Array> example_id = ints({1, 1, 1});
  std::shared_ptr<arrow::Array> position = ints({4, 5, 9});
  std::shared_ptr<arrow::Array> vector = lists({2, 2, 2});
  std::shared_ptr<arrow::Array> window = arrow::MakeArrayOfNull(arrow::int32(), 3).ValueOrDie();
};

std::string write(const TemporaryFolder& folder, const Columns& columns,
                  std::int64_t rows_of_group = 2,
                  const std::shared_ptr<parquet::WriterProperties>& properties =
                      parquet::default_writer_properties()) {
  const auto field = [](const char* name, const auto& array) {
    return arrow::field(name, array->type());
  };
  const auto schema =
      arrow::schema({field("bucket", columns.bucket), field("example_id", columns.example_id),
                     field("position", columns.position), field("vector", columns.vector),
                     field("sliding_window", columns.window)});
  const auto table = arrow::Table::Make(schema, {columns.bucket, columns.example_id,
                                                 columns.position, columns.vector, columns.window});
  std::string path = folder.file("data.parquet");
  const auto stream = arrow::io::FileOutputStream::Open(path).ValueOrDie();
  EXPECT_TRUE(parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), stream,
                                         rows_of_group, properties)
                  .ok());
  EXPECT_TRUE(stream->Close().ok());
  return path;
}

TEST(ForeignFile, ReadsVariableLengthListsAndDictionaryPages) {
  const TemporaryFolder folder;
  const HeadFile file = read_head_file(write(folder, {}));
  EXPECT_EQ(file.rows.head_dim, 2);
  EXPECT_EQ(file.rows.vectors, (std::vector<float>{0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(file.rows.position, (std::vector<std::int32_t>{4, 5, 9}));
  EXPECT_FALSE(file.rows.sliding_window);
  EXPECT_TRUE(file.metadata.empty());
  EXPECT_EQ(read_head_example_ids(folder.file("data.parquet")),
            (std::vector<std::int64_t>{1, 1, 1}));
  HeadRows keyed = file.rows;
  keyed.example_key = {7, 8, 9};
  write_head_file(folder.file("keyed.parquet"), keyed, {});
  EXPECT_EQ(read_head_example_ids(folder.file("keyed.parquet")), keyed.example_key);
}

TEST(ForeignFile, NamesTheRowWithAnotherVectorLength) {
  const TemporaryFolder folder;
  EXPECT_THAT(complaint(write(folder, {.vector = lists({2, 2, 3})})),
              AllOf(HasSubstr("row 2"), HasSubstr("3 numbers")));
  EXPECT_THAT(complaint(write(folder, {.vector = lists({16, 16, 15})})),
              AllOf(HasSubstr("row 2"), HasSubstr("15 numbers")));
  // The total equals that of two rows of 16.
  EXPECT_THAT(complaint(write(folder, {.vector = lists({17, 15, 16})})),
              AllOf(HasSubstr("row 1"), HasSubstr("15 numbers"), HasSubstr("have 17")));
  EXPECT_THAT(complaint(write(folder, {.vector = lists({31, 1, 16})})),
              AllOf(HasSubstr("row 1"), HasSubstr("1 numbers"), HasSubstr("have 31")));
}

TEST(ForeignFile, NamesTheRowWithANullVectorOrElement) {
  const TemporaryFolder folder;
  EXPECT_THAT(complaint(write(folder, {.vector = lists({16, -1, 16})})),
              AllOf(HasSubstr("row 1"), HasSubstr("'vector'")));
  arrow::ListBuilder builder(arrow::default_memory_pool(), std::make_shared<arrow::FloatBuilder>());
  auto& values = static_cast<arrow::FloatBuilder&>(*builder.value_builder());
  for (int i = 0; i < 48; ++i) {
    ASSERT_TRUE(i % 16 != 0 || builder.Append().ok());
    ASSERT_TRUE((i == 40 ? values.AppendNull() : values.Append(1)).ok());
  }
  EXPECT_THAT(complaint(write(folder, {.vector = builder.Finish().ValueOrDie()})),
              AllOf(HasSubstr("row 2"), HasSubstr("'vector'")));
}

TEST(ForeignFile, ReadsVectorsOfEveryPageEncoding) {
  const TemporaryFolder folder;
  constexpr int kRows = 40;
  for (const int length : {8, 9, 16, 130}) {
    std::vector<std::int32_t> zeros(kRows);
    std::vector<std::int32_t> position;
    std::vector<float> expected;
    arrow::ListBuilder builder(arrow::default_memory_pool(),
                               std::make_shared<arrow::FloatBuilder>());
    auto& values = static_cast<arrow::FloatBuilder&>(*builder.value_builder());
    for (int row = 0; row < kRows; ++row) {
      position.push_back(row);
      ASSERT_TRUE(builder.Append().ok());
      for (int j = 0; j < length; ++j) {
        expected.push_back(static_cast<float>(row) + 0.001F * static_cast<float>(j));
        ASSERT_TRUE(values.Append(expected.back()).ok());
      }
    }
    const Columns columns{ints(zeros), ints(zeros), ints(position), builder.Finish().ValueOrDie(),
                          arrow::MakeArrayOfNull(arrow::int32(), kRows).ValueOrDie()};
    for (const auto version :
         {parquet::ParquetDataPageVersion::V1, parquet::ParquetDataPageVersion::V2})
      for (const auto encoding : {parquet::Encoding::PLAIN, parquet::Encoding::BYTE_STREAM_SPLIT,
                                  parquet::Encoding::RLE_DICTIONARY})
        for (const std::int64_t page : {100, 1 << 20})
          for (const auto compression :
               {parquet::Compression::UNCOMPRESSED, parquet::Compression::ZSTD}) {
            parquet::WriterProperties::Builder properties;
            properties.data_page_version(version)
                ->data_pagesize(page)
                ->write_batch_size(7)
                ->compression(compression)
                ->disable_dictionary();
            if (encoding == parquet::Encoding::RLE_DICTIONARY)
              properties.enable_dictionary();
            else
              properties.encoding("vector.list.element", encoding);
            const auto rows = read_head_file(write(folder, columns, 30, properties.build())).rows;
            EXPECT_EQ(rows.head_dim, length);
            EXPECT_EQ(rows.vectors, expected);
          }
  }
}

TEST(ForeignFile, NamesTheRowWithANull) {
  const TemporaryFolder folder;
  EXPECT_THAT(complaint(write(folder, {.vector = lists({2, -1, 2})})),
              AllOf(HasSubstr("row 1"), HasSubstr("'vector'")));
  arrow::Int32Builder builder;
  ASSERT_TRUE(builder.Append(3).ok() && builder.Append(4).ok() && builder.AppendNull().ok());
  EXPECT_THAT(complaint(write(folder, {.position = builder.Finish().ValueOrDie()})),
              AllOf(HasSubstr("row 2"), HasSubstr("'position' is null")));
}

TEST(ForeignFile, NamesTheRowWithAnotherWindow) {
  const TemporaryFolder folder;
  EXPECT_THAT(complaint(write(folder, {.window = ints({512, 512, 1024})})),
              AllOf(HasSubstr("row 2"), HasSubstr("1024"), HasSubstr("512")));
  arrow::Int32Builder builder;
  ASSERT_TRUE(builder.Append(512).ok() && builder.AppendNull().ok() && builder.Append(512).ok());
  EXPECT_THAT(complaint(write(folder, {.window = builder.Finish().ValueOrDie()})),
              AllOf(HasSubstr("row 1"), HasSubstr("null")));
}

TEST(ForeignFile, NamesColumnsOfWrongType) {
  const TemporaryFolder folder;
  EXPECT_THAT(complaint(write(folder, {.vector = ints({1, 2, 3})})),
              HasSubstr("'vector' is INT32"));
  EXPECT_THAT(complaint(write(folder, {.position = ints({1, -2, 3})})),
              HasSubstr("position is -2"));
}

std::shared_ptr<arrow::Array> windows(const std::vector<std::int64_t>& values) {
  arrow::Int64Builder builder;
  EXPECT_TRUE(builder.AppendValues(values).ok());
  return builder.Finish().ValueOrDie();
}

TEST(ForeignFile, AcceptsWindowsOfInt64AndNullColumns) {
  const TemporaryFolder folder;
  EXPECT_EQ(read_head_file(write(folder, {.window = windows({512, 512, 512})})).rows.sliding_window,
            512);
  EXPECT_THAT(complaint(write(folder, {.window = windows({512, 1024, 512})})),
              AllOf(HasSubstr("row 1"), HasSubstr("1024")));
  const auto large = std::int64_t{1} << 40;
  EXPECT_THAT(complaint(write(folder, {.window = windows({large, large, large})})),
              HasSubstr("expected 1 to 2147483647"));
  for (const auto& type : {arrow::null(), arrow::utf8(), arrow::float64()}) {
    const auto nulls = arrow::MakeArrayOfNull(type, 3).ValueOrDie();
    const auto rows = read_head_file(write(folder, {.window = nulls})).rows;
    EXPECT_FALSE(rows.sliding_window);
    EXPECT_FALSE(rows.window_missing);
  }
  arrow::DoubleBuilder builder;
  ASSERT_TRUE(builder.AppendValues({512.0, 512.0, 512.0}).ok());
  EXPECT_THAT(complaint(write(folder, {.window = builder.Finish().ValueOrDie()})),
              HasSubstr("'sliding_window' is DOUBLE; expected INT32 or INT64"));
}

void write_heads(const TemporaryFolder& folder, const std::vector<HeadId>& ids,
                 const Metadata& metadata) {
  HeadRows rows;
  rows.head_dim = 1;
  rows.bucket = rows.example_id = rows.position = {0};
  rows.vectors = {1};
  for (const auto& id : ids) write_head_file(head_file_path(folder.path(), id), rows, metadata);
}

TEST(CaptureIndex, FindsTheKeyHeadOfAQueryHead) {
  const TemporaryFolder folder;
  const HeadId query{0, 6, HeadKind::query};
  write_heads(folder, {query, {0, 1, HeadKind::key}}, {});
  CaptureIndex index = index_capture(folder.path());
  EXPECT_EQ(index.queries, std::vector<HeadId>{query});
  EXPECT_EQ(key_head_of(index, query, HeadCounts{8, 2}), 1);
  try {
    key_head_of(index, query, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("name its model (--model)"));
  }
  EXPECT_THROW(key_head_of(index, query, HeadCounts{7, 2}), Error);
  EXPECT_THROW(key_head_of(index, query, HeadCounts{0, 2}), Error);
  EXPECT_THROW(key_head_of(index, query, HeadCounts{8, 0}), Error);
  EXPECT_THROW(key_head_of(index, query, HeadCounts{4, 2}), Error);
  write_file(folder.file("_saver_state.json"),
             R"({"model_name": "m", "model_metadata": {"head_sampling_num_query_heads": 16,
                 "head_sampling_num_key_heads": 8}})");
  index = index_capture(folder.path());
  EXPECT_EQ(index.model, "m");
  EXPECT_EQ(key_head_of(index, query, {}), 3);
  write_heads(folder, {query}, {{metadata::kKeyHead, "5"}});
  EXPECT_EQ(key_head_of(index, query, HeadCounts{8, 2}), 5);
}

TEST(CaptureIndex, RefusesAFolderWithoutHeads) {
  const TemporaryFolder folder;
  EXPECT_THROW(index_capture(folder.path()), Error);
  EXPECT_THAT(bad_input_message([&] { index_capture(folder.file("none")); }),
              AllOf(HasSubstr("there is no such folder"), HasSubstr("REPO@BRANCH")));
  write_heads(folder, {{0, 1, HeadKind::key}}, {});
  EXPECT_THAT(bad_input_message([&] { index_capture(folder.path()); }),
              HasSubstr("no query heads"));
}

// Older versions of qk-sniffer kept one folder per model and one state file above them.
TEST(CaptureIndex, ReadsOneSubfolderPerModel) {
  const TemporaryFolder folder;
  const auto write_model = [&](const std::string& model) {
    HeadRows rows;
    rows.head_dim = 1;
    rows.bucket = rows.example_id = rows.position = {0};
    rows.vectors = {1};
    write_head_file(head_file_path(folder.file(model), {0, 3, HeadKind::query}), rows, {});
  };
  write_model("org_a");
  write_file(folder.file("_saver_state.json"),
             R"({"model_metadata": {"org/a": {"sanitized_split": "org_a",
                   "head_sampling_num_query_heads": 4, "head_sampling_num_key_heads": 2},
                 "org/b": {"sanitized_split": "org_b", "head_sampling_num_query_heads": 8,
                   "head_sampling_num_key_heads": 2}}})");
  const auto only = index_capture(folder.path());
  EXPECT_EQ(only.data_root, folder.file("org_a"));
  EXPECT_EQ(only.model, "org/a");
  EXPECT_EQ(key_head_of(only, only.queries.front()), 1);
  write_model("org_b");
  EXPECT_THAT(bad_input_message([&] { index_capture(folder.path()); }),
              AllOf(HasSubstr("org_a, org_b"), HasSubstr("name one of them")));
}

TEST(CaptureIndex, ReadsTheSamplerFromTheStateFile) {
  const TemporaryFolder folder;
  write_heads(folder, {{0, 0, HeadKind::query}}, {});
  const auto sampler = [&](const std::string& details) {
    write_file(folder.file("_saver_state.json"), R"({"model_metadata": {)" + details + "}}");
    return index_capture(folder.path()).sampler;
  };
  const auto uniform = sampler(R"("sampling_strategy": "uniform", "sampling_bucket_size": 32)");
  ASSERT_TRUE(uniform);
  EXPECT_EQ(uniform->type, SamplerType::uniform);
  EXPECT_EQ(uniform->min_bucket_size, 32);
  const auto log = sampler(R"("sampling_strategy": "log", "sampling_min_bucket_size": 128)");
  ASSERT_TRUE(log);
  EXPECT_EQ(log->type, SamplerType::log_uniform);
  EXPECT_EQ(log->min_bucket_size, 128);
  EXPECT_TRUE(sampler(R"("sampling_strategy": "all", "sampling_bucket_size": 8)"));
  EXPECT_FALSE(sampler(R"("sampling_strategy": "uniform")"));
  EXPECT_FALSE(sampler(R"("sampling_strategy": "another", "sampling_bucket_size": 8)"));
  EXPECT_FALSE(sampler(R"("sampling_bucket_size": 8)"));
}

TEST(RopeInfo, ReadsRopeFromMetadata) {
  EXPECT_EQ(rope_info({}, "f").use, RopeUse::unknown);
  EXPECT_EQ(rope_info({{metadata::kRope, "none"}}, "f").use, RopeUse::nope);
  const auto plain = rope_info({{metadata::kRope, R"({"theta": 100.0, "dim": 4})"}}, "f");
  EXPECT_EQ(plain.use, RopeUse::rope);
  EXPECT_EQ(plain.inv_freq, (std::vector<double>{1, 0.1}));
  const auto listed =
      rope_info({{metadata::kRope, "{}"}, {metadata::kRopeInvFreq, "[0.25, 0.5]"}}, "f");
  EXPECT_EQ(listed.inv_freq, (std::vector<double>{0.5, 0.25}));
  EXPECT_THROW(rope_info({{metadata::kRope, "{"}}, "f"), Error);
  EXPECT_THROW(rope_info({{metadata::kRope, "{}"}, {metadata::kRopeInvFreq, "[0]"}}, "f"), Error);
}

}  // namespace
}  // namespace qkscope
