// Test fixture with a tiny checkpoint, a small dataset and a configuration in a temporary folder.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/io/json.h"
#include "base/io/mapped_file.h"
#include "capture/folders_in_memory.h"
#include "cli/run_program.h"
#include "paths.h"
#include "sanitized.h"
#include "temporary_folder.h"

namespace qkscope {

inline void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
}

// Creates the checkpoint of tools/make_tiny_checkpoint.py once per test program.
inline const std::string& tiny_checkpoint() {
  static const TemporaryFolder folder;
  static const std::string path = [] {
    auto out = folder.file("tiny");
    const auto line = fmt::format("python3 '{}/tools/make_tiny_checkpoint.py' --out '{}' 2>&1",
                                  source_path(), out);
    EXPECT_EQ(std::system((line + " >/dev/null").c_str()), 0) << line;
    return out;
  }();
  return path;
}

// Writes `count` random documents of up to `words` words as JSON Lines with text and id.
inline void write_documents(const std::string& path, int count, int words) {
  std::mt19937 random(1);
  const std::vector<std::string> vocabulary = {"stone", "river", "and", "the", "cold", "light"};
  std::ofstream out(path);
  for (int i = 0; i < count; ++i) {
    std::string text;
    const auto length = 1 + random() % static_cast<unsigned>(words);
    for (unsigned w = 0; w < length; ++w)
      text += (w ? " " : "") + vocabulary[random() % vocabulary.size()];
    out << Json{{"id", fmt::format("doc-{}", i)}, {"text", text}}.dump() << "\n";
  }
}

// Sets all bits of the first bytes of a tensor: NaN in every float format.
inline void break_weight(const std::string& model, const std::string& tensor) {
  const auto path = model + "/model.safetensors";
  std::uint64_t header_size = 0;
  std::fstream weights(path, std::ios::in | std::ios::out | std::ios::binary);
  weights.read(reinterpret_cast<char*>(&header_size), sizeof header_size);
  std::string header(header_size, '\0');
  weights.read(header.data(), static_cast<std::streamsize>(header_size));
  const auto begin =
      parse_json(header, path).at(tensor).at("data_offsets").at(0).get<std::uint64_t>();
  weights.seekp(static_cast<std::streamoff>(8 + header_size + begin));
  weights << std::string(4, '\xff');
}

class CaptureFixture : private FoldersInMemory, public testing::Test {
 protected:
  void SetUp() override {
    write_documents(file("docs.jsonl"), 40, 30);
    write_config("");
  }

  std::string file(const std::string& name) const { return folder_.file(name); }

  // Appends `more` to the section capture.
  void write_config(const std::string& more) {
    write_text(file("run.yaml"), fmt::format("dataset:\n  path: {}\n  id_column: id\n"
                                             "model:\n  name: {}\n  dtype: float32\n"
                                             "  device_map: cpu\n"
                                             "tokenizer:\n  max_length: 100\n"
                                             "capture:\n  head_sampling: {{count: 6, seed: 0}}\n"
                                             "  sampler: {{type: uniform, base_rate: 4.0}}\n"
                                             "  min_bucket_size: 16\n{}",
                                             file("docs.jsonl"), tiny_checkpoint(), more));
  }

  std::string command(const std::string& root, const std::string& options = "") const {
    return fmt::format("sniff-qk --config {} --set output.data_root={} --quiet {}",
                       file("run.yaml"), file(root), options);
  }
  Outcome capture(const std::string& root, const std::string& options = "") const {
    return run_program(command(root, options));
  }

  // Relative path and content of every file below the folder.
  std::map<std::string, std::string> contents(const std::string& root) const {
    namespace fs = std::filesystem;
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::recursive_directory_iterator(file(root)))
      if (entry.is_regular_file())
        all[fs::relative(entry.path(), file(root)).string()] =
            std::string(MappedFile(entry.path().string()).text());
    return all;
  }

  void expect_same(const std::string& root, const std::map<std::string, std::string>& expected) {
    const auto found = contents(root);
    EXPECT_EQ(found.size(), expected.size());
    for (const auto& [name, content] : expected) {
      ASSERT_TRUE(found.contains(name)) << name;
      EXPECT_TRUE(found.at(name) == content) << root << "/" << name << " differs";
    }
  }

  TemporaryFolder folder_;
};

}  // namespace qkscope
