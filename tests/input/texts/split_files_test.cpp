// Split selection in folders with the layout of a Hub dataset.
#include <filesystem>

#include <gtest/gtest.h>

#include "base/core/error.h"
#include "base/io/output_file.h"
#include "error_message.h"
#include "input/texts/dataset_files.h"
#include "qkscope/texts.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

class SplitFilesTest : public testing::Test {
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

TEST_F(SplitFilesTest, ShardsOfASplitAreReadInOrder) {
  add("data/train-00001-of-00002.jsonl", "b");
  add("data/train-00000-of-00002.jsonl", "a");
  add("data/test-00000-of-00001.jsonl", "c");
  add("data/training.jsonl", "x");
  EXPECT_EQ(texts("train"), "ab");
  EXPECT_EQ(texts("test"), "c");
  const std::string message = bad_input_message([&] { texts("validation"); });
  EXPECT_NE(message.find("data/test-00000-of-00001.jsonl"), std::string::npos) << message;
}

TEST_F(SplitFilesTest, ConfigurationNamesSelectFolders) {
  add("en/train.jsonl", "e");
  add("de/train/0.jsonl", "d");
  EXPECT_EQ(texts("train", "en"), "e");
  EXPECT_EQ(texts("train", "de"), "d");
  const std::string message = bad_input_message([&] { texts("train", "fr"); });
  EXPECT_NE(message.find("en"), std::string::npos) << message;
}

TEST_F(SplitFilesTest, FilesThatNameNoSplitAreTheTrainSplit) {
  add("one.jsonl", "1");
  add("two.jsonl", "2");
  EXPECT_EQ(texts("train"), "12");
  bad_input_message([&] { texts("test"); });
}

TEST_F(SplitFilesTest, TheCardSelectsFiles) {
  add("long/a.jsonl", "a");
  add("long/deep/b.jsonl", "b");
  add("short/c.jsonl", "c");
  add("train.jsonl", "t");
  write_file(folder_.file("README.md"),
             "---\n"
             "license: mit\n"
             "configs:\n"
             "- config_name: long\n"
             "  default: true\n"
             "  data_files:\n"
             "  - {split: test, path: long/*.jsonl}\n"
             "  - {split: all, path: [\"long/**/*.jsonl\", short/c.jsonl]}\n"
             "- config_name: short\n"
             "  data_files: short/*.jsonl\n"
             "- config_name: dir\n"
             "  data_dir: short\n"
             "---\n# Texts\n");
  EXPECT_EQ(texts("test"), "a");
  EXPECT_EQ(texts("all"), "abc");
  EXPECT_EQ(texts("train", "short"), "c");
  EXPECT_EQ(texts("train", "dir"), "c");
  const std::string message = bad_input_message([&] { texts("train"); });
  EXPECT_NE(message.find("its card names: all, test"), std::string::npos) << message;
}

TEST_F(SplitFilesTest, SeveralConfigurationsRequireAName) {
  add("a.jsonl", "a");
  write_file(folder_.file("README.md"),
             "---\nconfigs:\n- {config_name: x, data_files: a.jsonl}\n- {config_name: y}\n---\n");
  const std::string message = bad_input_message([&] { texts("train"); });
  EXPECT_NE(message.find("choose one by name: x, y"), std::string::npos) << message;
  EXPECT_EQ(texts("train", "x"), "a");
}

TEST_F(SplitFilesTest, InvalidCardsAreIgnoredWithAWarning) {
  add("train.jsonl", "t");
  for (const std::string card : {"# Texts", "---\nlicense: mit\n---\n", "---\n{ : [\n---\n",
                                 "---\nconfigs: 3\n---\n", "---\nconfigs:\n- 3\n---\n", "---"}) {
    write_file(folder_.file("README.md"), card);
    EXPECT_EQ(texts("train"), "t") << card;
  }
}

// Patterns that take exponential time in a naive matcher.
TEST_F(SplitFilesTest, GlobMatchingTakesPolynomialTime) {
  const std::string deep = "d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d";
  add(deep + "/a.jsonl", "a");
  std::string pattern;
  for (int i = 0; i < 40; ++i) pattern += "**/d/";
  write_file(folder_.file("README.md"),
             "---\nconfigs:\n- config_name: x\n  data_files: '" + pattern + "no.jsonl'\n---\n");
  bad_input_message([&] { texts("train"); });
  write_file(folder_.file("README.md"),
             "---\nconfigs:\n- config_name: x\n  data_files: '**/d/**/d/**/a.jsonl'\n---\n");
  EXPECT_EQ(texts("train"), "a");
}

// A thousand configurations that share a thousand patterns through YAML aliases.
TEST_F(SplitFilesTest, YamlAliasesCannotMultiplyPatterns) {
  add("train.jsonl", "t");
  std::string many = "a: &a [";
  for (int i = 0; i < 1000; ++i) many += "\"f*.jsonl\",";
  std::string card = "---\n" + many + "]\nconfigs:\n";
  for (int i = 0; i < 1000; ++i) card += "- {config_name: c, data_files: {train: *a}}\n";
  write_file(folder_.file("README.md"), card + "---\n");
  EXPECT_EQ(texts("train"), "t");  // ignored with a warning
}

TEST_F(SplitFilesTest, MissingSplitsListTheDataFiles) {
  bad_input_message([&] { texts("train"); });
  CorpusOptions options;
  options.path = folder_.file("absent");
  const std::string message = bad_input_message([&] { open_corpus(options); });
  EXPECT_NE(message.find("absent"), std::string::npos) << message;
}

// One row per rule: the files of a dataset, its card, the split and configuration, and the files
// chosen or the message.
TEST(ChooseSplitFiles, FollowsCardAndNames) {
  struct Row {
    std::vector<std::string> paths;
    std::string card, split;
    std::optional<std::string> name;
    std::string expected;
  };
  const auto config = [](const std::string& lines) {
    return "---\nconfigs:\n- config_name: one\n" + lines + "---\n";
  };
  const std::string many = "  data_files: \"" + std::string(1001, '*') + "\"\n";
  const Row rows[] = {
      {{"b.jsonl", "a.jsonl"}, "---\nconfigs: []\n", "train", {}, "a.jsonl b.jsonl"},
      {{"a.jsonl", "b.jsonl"},
       "---\r\nconfigs:\r\n- data_files: b.jsonl\r\n---\r\n",
       "train",
       {},
       "b.jsonl"},
      {{"a.jsonl", "b.jsonl"},
       config("  data_files: [./a.jsonl, none.jsonl]\n"),
       "train",
       {},
       "a.jsonl"},
      {{"a.jsonl", "b.jsonl"},
       config("  data_files:\n  - path: a.jsonl\n  - split: test\n  - b.jsonl\n  - [c]\n"),
       "train",
       {},
       "a.jsonl b.jsonl"},
      {{"en/a.jsonl", "a.jsonl"},
       config("  data_dir: en//\n  data_files: '*.jsonl'\n"),
       "train",
       {},
       "en/a.jsonl"},
      {{"x/y/a.jsonl", "x/b.jsonl"},
       config("  data_files: 'x/**'\n"),
       "train",
       {},
       "x/b.jsonl x/y/a.jsonl"},
      {{"a.jsonl"}, config(many), "train", {}, "more patterns than can be tried"},
      {{"a.jsonl"},
       config("  data_files: '*.txt'\n"),
       "train",
       {},
       "The data files in it: a.jsonl"},
      {{"a.md"},
       "",
       "train",
       {},
       "There are no .parquet, .jsonl, .json, .csv or .txt files in it."},
      {{"test.jsonl", "a.jsonl"}, "", "train", {}, "no data files for the split 'train'"},
      {{"validation.jsonl", "a.jsonl"}, "", "train", {}, "no data files for the split 'train'"},
      {{"train.csv", "train.parquet"}, "", "train", {}, "train.parquet"},
      {{"train", "train.jsonl", ".train.jsonl"}, "", "train", {}, "train.jsonl"},
      {{"a.jsonl"}, "", "train", "one", "there is no configuration 'one'; the folders in it: none"},
      {{"a.jsonl", "b/c.jsonl"}, config(""), "train", "two", "the folders in it: b"},
      {{"a.jsonl"}, "---\n" + std::string(17 << 20, '#') + "\n---\n", "train", {}, "a.jsonl"},
  };
  for (const auto& [paths, card, split, name, expected] : rows) {
    CorpusOptions options;
    options.split = split;
    options.name = name;
    std::string found;
    try {
      for (const auto& file : choose_dataset_files(paths, card, options, "set"))
        found += (found.empty() ? "" : " ") + file;
      EXPECT_EQ(found, expected);
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what();
    }
  }
}

TEST_F(SplitFilesTest, HiddenFoldersAreSkipped) {
  add(".cache/train.jsonl", "x");
  add("train.jsonl", "a");
  EXPECT_EQ(texts("train"), "a");
}

}  // namespace
}  // namespace qkscope
