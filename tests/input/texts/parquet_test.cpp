// Parquet files written by Python: string types, codecs, ids.
#include <gtest/gtest.h>

#include "base/io/checksum.h"
#include "base/io/output_file.h"
#include "error_message.h"
#include "python.h"
#include "qkscope/texts.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

class ParquetTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(run_python("tests/input/texts/write_parquet.py", {folder_.path()}), 0);
  }
  std::vector<Document> read(const std::string& name, const std::string& id_column) {
    CorpusOptions options;
    options.path = folder_.file(name);
    options.id_column = id_column;
    const auto corpus = open_corpus(options);
    std::vector<Document> documents;
    for (Document document; corpus->next(document);) documents.push_back(document);
    EXPECT_EQ(corpus->counts().null_texts, 1);
    EXPECT_EQ(corpus->counts().empty_texts, 1);
    return documents;
  }

  TemporaryFolder folder_;
};

TEST_F(ParquetTest, ReadsEveryStringTypeAndCodec) {
  for (const char* name : {"string", "large_string", "dictionary", "snappy", "zstd", "gzip",
                           "brotli", "lz4", "none"}) {
    const auto documents = read(std::string(name) + ".parquet", "string_id");
    ASSERT_EQ(documents.size(), 1000u) << name;
    EXPECT_EQ(documents[0].text, "text 0 ü") << name;
    EXPECT_EQ(documents[999].row, 1001) << name;  // after the null and the empty text
    EXPECT_EQ(documents[999].source_id, "id-1001") << name;
  }
}

TEST_F(ParquetTest, IdsOfEveryTypeGiveKeys) {
  EXPECT_EQ(read("string.parquet", "int_id")[5].example_key, 5 - 500);
  EXPECT_EQ(read("string.parquet", "bool_id")[1].example_key, 1);
  EXPECT_EQ(read("string.parquet", "float_id")[2].example_key, 1);
  EXPECT_EQ(read("string.parquet", "float_id")[3].source_id, "1.5");
  EXPECT_EQ(read("string.parquet", "dictionary_id")[0].example_key,
            static_cast<std::int64_t>(blake2b_64("id-0")));
  EXPECT_EQ(read("string.parquet", "date_id")[0].source_id, "2020-01-01");
  EXPECT_EQ(read("string.parquet", "null_id")[0].source_id, "None");
}

TEST_F(ParquetTest, ErrorsNameFileAndColumn) {
  CorpusOptions options;
  options.path = folder_.file("string.parquet");
  options.text_column = "body";
  std::string message = bad_input_message([&] { open_corpus(options); });
  EXPECT_NE(message.find("string_id"), std::string::npos) << message;
  options.text_column = "int_id";
  message = bad_input_message([&] { open_corpus(options); });
  EXPECT_NE(message.find("int64"), std::string::npos) << message;
  options.path = folder_.file("broken.parquet");
  write_file(options.path, "PAR1 not really");
  message = bad_input_message([&] { open_corpus(options); });
  EXPECT_NE(message.find("broken.parquet"), std::string::npos) << message;
}

}  // namespace
}  // namespace qkscope
