// `qkscope figures` on whole, partial and bad results: what it says, how it exits, what it leaves.
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/run_program.h"
#include "io/folder.h"
#include "io/output_file.h"
#include "paths.h"
#include "qkscope/analysis.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class Figures : public ::testing::Test {
 protected:
  Figures() {
    PlantedCaptureOptions options;
    options.data_root = folder_.file("capture");
    options.layers = 4;
    options.query_heads = 2;
    options.key_heads = 1;
    options.active_planes = 1;
    options.head.dim = 8;
    options.head.examples = 8;
    options.head.context = 256;
    options.head.bucket_size = 32;
    write_planted_capture(options);
  }

  void analyze(const std::string& more = "") const {
    const auto done = run_program("qkscope analyze " + folder_.file("capture") + " --out " +
                                  results() + " --quiet " + more);
    ASSERT_EQ(done.status, 0) << done.err;
  }
  Outcome figures(const std::string& more = "") const {
    return run_program("qkscope figures " + results() + " --out " + out() + " " + more);
  }
  bool drawn(const std::string& name) const { return path_exists(out() + "/" + name); }
  std::string results() const { return folder_.file("results"); }
  std::string out() const { return folder_.file("figures"); }

  TemporaryFolder folder_;
};

TEST_F(Figures, AFigureComesWithNumbersScriptAndCaption) {
  analyze();
  const auto done = figures("--only position_signal");
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(
      names_in(out()),
      ::testing::ElementsAre("position_signal.csv", "position_signal.gp", "position_signal.pdf",
                             "position_signal.png", "position_signal.svg", "position_signal.txt"));
}

TEST_F(Figures, OnlyTheFormatsAskedFor) {
  analyze();
  EXPECT_EQ(figures("--format png").status, 0);
  EXPECT_TRUE(drawn("taxonomy_evolution.png"));
  EXPECT_FALSE(drawn("taxonomy_evolution.svg"));
  EXPECT_TRUE(drawn("report.html"));
  EXPECT_THAT(std::string(MappedFile(out() + "/taxonomy_evolution.gp").text()),
              HasSubstr("formats = 'png'"));
}

TEST_F(Figures, WithoutItsDataAFigureIsLeftOutAndNamed) {
  analyze("--only pca --scatter 0");
  const auto done = figures("--format svg --no-report");
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_TRUE(drawn("position_signal.svg"));
  EXPECT_FALSE(drawn("plasticity_profile.svg"));
  EXPECT_FALSE(drawn("report.html"));
  EXPECT_THAT(done.err, AllOf(HasSubstr("plasticity_profile left out: there is no head_profile"),
                              HasSubstr("qk_collage left out: there is no head_scatter")));
  const auto only = figures("--only plasticity_profile");
  EXPECT_EQ(only.status, 2);
  EXPECT_THAT(only.err, HasSubstr("no figure 'plasticity_profile': there is no head_profile"));
}

TEST_F(Figures, PointsWithoutRotationHaveNoPlane) {
  analyze("--only pca");
  const auto done = figures("--format svg --no-report");
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_TRUE(drawn("qk_collage.svg"));
  EXPECT_FALSE(drawn("ab_plane_collage.svg"));
  EXPECT_THAT(done.err, HasSubstr("ab_plane_collage left out: none of its numbers exists"));
}

TEST_F(Figures, LabelsAreTextAndNothingElse) {
  analyze("--label 'a\"b_{c}@^d`touch '" + folder_.file("touched") +
          "'`\\'\\''</script><script>alert(1)</script>'");
  const auto done = figures("--format svg");
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_FALSE(path_exists(folder_.file("touched")));
  EXPECT_THAT(std::string(MappedFile(out() + "/report.html").text()),
              Not(HasSubstr("<script>alert")));
}

TEST_F(Figures, WrongNamesAreAnswered) {
  analyze("--only pca");
  const auto typo = figures("--only postion_signal");
  EXPECT_EQ(typo.status, 2);
  EXPECT_THAT(typo.err, HasSubstr("did you mean 'position_signal'?"));
  const auto format = figures("--format gif");
  EXPECT_EQ(format.status, 2);
  EXPECT_THAT(format.err, HasSubstr("'gif' is not a format; expected some of svg,png,pdf"));
}

TEST_F(Figures, AFolderWithoutResultsIsRefused) {
  const auto missing = figures();
  EXPECT_EQ(missing.status, 2);
  EXPECT_THAT(missing.err, HasSubstr("there is no such folder"));
  std::filesystem::create_directory(results());
  const auto empty = figures();
  EXPECT_EQ(empty.status, 2);
  EXPECT_THAT(empty.err, HasSubstr("no result tables"));
  EXPECT_FALSE(path_exists(out()));
}

TEST_F(Figures, DamagedTablesAreNamedAndLeaveNothing) {
  analyze();
  write_file(results() + "/rotated.parquet", "PAR1 no more");
  const auto done = figures();
  EXPECT_EQ(done.status, 2);
  EXPECT_THAT(done.err, HasSubstr("rotated.parquet: not a readable Parquet file"));
  EXPECT_FALSE(path_exists(out()));
}

TEST_F(Figures, DamagedRunsAreNamedAndLeaveNoReport) {
  analyze();
  write_file(results() + "/runs.json", "{ \"runs\": ");
  const auto done = figures("--format svg");
  EXPECT_EQ(done.status, 2);
  EXPECT_THAT(done.err, HasSubstr("runs.json: not valid JSON"));
  EXPECT_THAT(names_in(out()), IsEmpty());
}

TEST_F(Figures, WithoutGnuplotItSaysWhatToInstall) {
  analyze("--only pca");
  const auto done = run_program("PATH=" + program_folder() + "; qkscope figures " + results() +
                                " --out " + out());
  EXPECT_EQ(done.status, 1);
  EXPECT_THAT(done.err, AllOf(HasSubstr("gnuplot is not installed"), HasSubstr("gnuplot-nox")));
  EXPECT_FALSE(path_exists(out()));
}

TEST_F(Figures, AGnuplotThatFailsIsQuotedAndLeavesNothing) {
  analyze("--only pca");
  const auto bin = folder_.file("bin");
  std::filesystem::create_directory(bin);
  write_file(bin + "/gnuplot",
             "#!/bin/sh\n[ \"$1\" = --version ] && exit 0\necho broken >&2\nexit 1\n");
  std::filesystem::permissions(bin + "/gnuplot", std::filesystem::perms::owner_all);
  const auto done =
      run_program("PATH=" + bin + ":$PATH; qkscope figures " + results() + " --out " + out());
  EXPECT_EQ(done.status, 1);
  EXPECT_THAT(done.err, AllOf(HasSubstr("gnuplot could not draw"), HasSubstr("broken")));
  EXPECT_THAT(names_in(out()), IsEmpty());
}

}  // namespace
}  // namespace qkscope
