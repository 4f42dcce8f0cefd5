// Folders in the layout of a Hub dataset.
#include <filesystem>

#include <gtest/gtest.h>

#include "core/output_file.h"
#include "corpus/corpus.h"
#include "error_message.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

class LayoutTest : public testing::Test {
 protected:
  void add(const std::string& path, const std::string& text) {
    const std::filesystem::path file = folder_.file(path);
    std::filesystem::create_directories(file.parent_path());
    write_file(file.string(), "{\"text\": \"" + text + "\"}\n");
  }
  std::string texts(const std::string& split, const std::optional<std::string>& name = {}) {
    CorpusOptions options;
    options.path = folder_.path();
    options.split = split;
    options.name = name;
    const auto corpus = open_corpus(options);
    std::string all;
    for (Document document; corpus->next(document);) all += document.text;
    return all;
  }

  TemporaryFolder folder_;
};

TEST_F(LayoutTest, ShardsInOrderByTheirSplit) {
  add("data/train-00001-of-00002.jsonl", "b");
  add("data/train-00000-of-00002.jsonl", "a");
  add("data/test-00000-of-00001.jsonl", "c");
  add("data/training.jsonl", "x");
  EXPECT_EQ(texts("train"), "ab");
  EXPECT_EQ(texts("test"), "c");
  const std::string message = bad_input_message([&] { texts("validation"); });
  EXPECT_NE(message.find("data/test-00000-of-00001.jsonl"), std::string::npos) << message;
}

TEST_F(LayoutTest, ConfigurationsAreFolders) {
  add("en/train.jsonl", "e");
  add("de/train/0.jsonl", "d");
  EXPECT_EQ(texts("train", "en"), "e");
  EXPECT_EQ(texts("train", "de"), "d");
  const std::string message = bad_input_message([&] { texts("train", "fr"); });
  EXPECT_NE(message.find("en"), std::string::npos) << message;
}

TEST_F(LayoutTest, FilesWithoutASplitInTheirNamesAreTheTrainSplit) {
  add("one.jsonl", "1");
  add("two.jsonl", "2");
  EXPECT_EQ(texts("train"), "12");
  bad_input_message([&] { texts("test"); });
}

TEST_F(LayoutTest, NothingThere) {
  bad_input_message([&] { texts("train"); });
  CorpusOptions options;
  options.path = folder_.file("absent");
  const std::string message = bad_input_message([&] { open_corpus(options); });
  EXPECT_NE(message.find("absent"), std::string::npos) << message;
}

}  // namespace
}  // namespace qkscope
