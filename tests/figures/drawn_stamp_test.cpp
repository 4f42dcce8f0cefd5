// What is drawn again, and what is not.
#include <filesystem>

#include <gtest/gtest.h>

#include "io/folder.h"
#include "io/mapped_file.h"
#include "io/output_file.h"
#include "qkscope/analysis.h"
#include "qkscope/figures.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

class DrawnStamp : public testing::Test {
 protected:
  void SetUp() override {
    PlantedCaptureOptions capture;
    capture.data_root = folder_.file("capture");
    capture.layers = 2;
    capture.query_heads = 2;
    capture.key_heads = 1;
    capture.active_planes = 1;
    capture.head.dim = 8;
    capture.head.examples = 8;
    capture.head.context = 256;
    capture.head.bucket_size = 32;
    write_planted_capture(capture);
    AnalyzeOptions analysis;
    analysis.data_root = capture.data_root;
    analysis.rotation = false;
    analysis.plasticity = false;
    analysis.quiet = true;
    write_results(options_.results, analyze_capture(analysis), analysis);
  }

  // True where something was drawn.
  bool draws() {
    const auto before = last_write();
    const auto drawn = draw_figures(options_);
    EXPECT_FALSE(drawn.figures.empty());
    figures_ = drawn.figures;
    EXPECT_EQ(drawn.drawn_before, last_write() == before);
    return !drawn.drawn_before;
  }
  fs::file_time_type last_write() const {
    auto last = fs::file_time_type::min();
    if (!is_folder(options_.out)) return last;
    for (const auto& name : names_in(options_.out))
      last = std::max(last, fs::last_write_time(options_.out + "/" + name));
    return last;
  }

  TemporaryFolder folder_;
  DrawOptions options_{.results = folder_.file("results"),
                       .out = folder_.file("results/figures"),
                       .only = "",
                       .formats = {"svg"},
                       .report = false,
                       .quiet = true,
                       .if_changed = true};
  std::vector<std::string> figures_;
};

TEST_F(DrawnStamp, TheSameIsNotDrawnAgain) {
  EXPECT_TRUE(draws());
  const auto first = figures_;
  EXPECT_FALSE(draws());
  EXPECT_EQ(figures_, first);
  const auto table = options_.results + "/qk.csv";
  const auto content = std::string(MappedFile(table).text());
  write_file(table, content);  // the same bytes, written again
  write_file(options_.results + "/timings.json", "{}");
  EXPECT_FALSE(draws());
}

TEST_F(DrawnStamp, WhatChangedOrIsMissingIsDrawn) {
  EXPECT_TRUE(draws());
  write_file(options_.results + "/summary.json", "{}");
  EXPECT_TRUE(draws());
  fs::remove(options_.out + "/" + figures_.front() + ".svg");
  EXPECT_TRUE(draws());
  write_file(options_.out + "/.drawn.json", "{\"inputs\": 3");
  EXPECT_TRUE(draws());
  options_.formats = {"png"};
  EXPECT_TRUE(draws());
  EXPECT_FALSE(draws());
  options_.if_changed = false;
  EXPECT_TRUE(draws());
  options_.if_changed = true;  // drawn by hand in between: nothing is known of it
  EXPECT_TRUE(draws());
}

}  // namespace
}  // namespace qkscope
