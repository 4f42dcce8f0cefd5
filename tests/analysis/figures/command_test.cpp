// `qkscope figures` on complete, partial and damaged results: messages, exit status, files.
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/io/folder.h"
#include "base/io/output_file.h"
#include "cli/run_program.h"
#include "paths.h"
#include "qkscope/analysis.h"
#include "qkscope/figures.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class Figures : public ::testing::Test {
 protected:
  Figures() { write_capture(4); }

  void write_capture(int nope_every, const std::string& name = "capture",
                     int query_heads = 2) const {
    PlantedCaptureOptions options;
    options.data_root = folder_.file(name);
    options.nope_every = nope_every;
    options.layers = 4;
    options.query_heads = query_heads;
    options.key_heads = 1;
    options.active_planes = 1;
    options.head.dim = 8;
    options.head.examples = 8;
    options.head.context = 256;
    options.head.bucket_size = 32;
    write_planted_capture(options);
  }

  void analyze(const std::string& more = "") const {
    const auto done = run_program("qkscope analyze --overwrite " + folder_.file("capture") +
                                  " --out " + results() + " --quiet " + more);
    ASSERT_EQ(done.status, 0) << done.err;
  }
  Outcome figures(const std::string& more = "") const {
    return run_program("qkscope figures " + results() + " --out " + out() + " " + more);
  }
  bool drawn(const std::string& name) const { return path_exists(out() + "/" + name); }
  std::string csv(const std::string& name) const { return text(name + ".csv"); }
  std::string caption(const std::string& name) const { return text(name + ".txt"); }
  std::string text(const std::string& file) const {
    return std::string(MappedFile(out() + "/" + file).text());
  }
  std::string results() const { return folder_.file("results"); }
  std::string out() const { return folder_.file("figures"); }

  TemporaryFolder folder_;
};

TEST_F(Figures, OnlyWritesOneFigureWithDataScriptAndCaption) {
  analyze();
  make_folders(out() + "/.drawing-Xy12zZ/half");  // left by a killed process
  const auto done = figures("--only position_signal");
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(
      entry_names(out()),
      ::testing::ElementsAre("position_signal.csv", "position_signal.gp", "position_signal.pdf",
                             "position_signal.png", "position_signal.svg", "position_signal.txt"));
}

TEST_F(Figures, FormatSelectsTheFilesWritten) {
  analyze();
  EXPECT_EQ(figures("--format png").status, 0);
  EXPECT_TRUE(drawn("class_counts.png"));
  EXPECT_FALSE(drawn("class_counts.svg"));
  EXPECT_TRUE(drawn("report.html"));
  EXPECT_THAT(std::string(MappedFile(out() + "/class_counts.gp").text()),
              HasSubstr("formats = 'png'"));
}

TEST_F(Figures, AFigureWithoutDataIsLeftOutWithAReason) {
  analyze("--only pca --scatter 0");
  const auto done = figures("--format svg --no-report");
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_TRUE(drawn("head_map_rq.svg"));
  EXPECT_FALSE(drawn("plasticity_profile.svg"));
  EXPECT_FALSE(drawn("report.html"));
  EXPECT_THAT(done.err,
              AllOf(ContainsRegex("plasticity_profile[a-z_, ]* left out: there is no head_profile"),
                    ContainsRegex("qk_collage[a-z_, ]* left out: there is no head_scatter")));
  const auto only = figures("--only plasticity_profile");
  EXPECT_EQ(only.status, 2);
  EXPECT_THAT(only.err, HasSubstr("no figure 'plasticity_profile': there is no head_profile"));
}

TEST_F(Figures, WithoutTheRotationThereIsNoPlaneCollage) {
  analyze("--only pca");
  const auto done = figures("--format svg --no-report");
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_TRUE(drawn("qk_collage.svg"));
  EXPECT_FALSE(drawn("ab_plane_collage.svg"));
  EXPECT_THAT(done.err,
              ContainsRegex("ab_plane_collage[a-z_, ]* left out: none of its numbers exists"));
}

TEST_F(Figures, ASingleRunGetsHeadMapsInsteadOfTrajectories) {
  analyze();
  const auto done = figures("--format svg");
  EXPECT_EQ(done.status, 0) << done.err;
  for (const char* name : {"head_map_rq", "head_map_bias", "head_map_class", "distributions"})
    EXPECT_TRUE(drawn(std::string(name) + ".svg")) << name;
  for (const char* name : {"position_signal", "rotation_trajectory", "bias_strength"})
    EXPECT_FALSE(drawn(std::string(name) + ".svg")) << name;
  // One message lists all figures that compare runs.
  EXPECT_THAT(done.err, HasSubstr("compare runs, and this is one: position_signal, "));
  EXPECT_THAT(done.err, Not(ContainsRegex("position_signal[a-z_, ]* left out")));
  EXPECT_THAT(csv("head_map_rq"), HasSubstr("layer,head,r_q,nope"));
}

TEST_F(Figures, TheReportAloneIsOneFile) {
  analyze("--only pca");
  const auto path = folder_.file("reports/one.html");
  const auto done = run_program("qkscope report " + results() + " --out " + path);
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(entry_names(folder_.file("reports")), ::testing::ElementsAre("one.html"));
  EXPECT_THAT(std::string(MappedFile(path).text()), HasSubstr("\"other\":null"));
}

class Comparison : public Figures {
 protected:
  Comparison() { analyze("--only pca --layers 0,1"); }

  Outcome compare(const std::string& with) const {
    return run_program("qkscope report " + results() + " --compare " + folder_.file(with) +
                       " --out " + page());
  }
  void analyze_into(const std::string& name, const std::string& more,
                    const std::string& capture = "capture") const {
    const auto done = run_program("qkscope analyze " + folder_.file(capture) + " --out " +
                                  folder_.file(name) + " --only pca --quiet " + more);
    ASSERT_EQ(done.status, 0) << done.err;
  }
  std::string page() const { return folder_.file("both.html"); }
};

TEST_F(Comparison, HasTheHeadsOfBothResults) {
  analyze_into("other", "--layers 1,2");
  const auto done = compare("other");
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(std::string(MappedFile(page()).text()), HasSubstr(R"("other":{"figures":)"));
}

TEST_F(Comparison, RefusesModelsWithDifferentLayersOrHeads) {
  write_capture(4, "larger", 4);
  analyze_into("other", "", "larger");
  const auto done = compare("other");
  EXPECT_EQ(done.status, 2);
  EXPECT_THAT(done.err, AllOf(HasSubstr("results has 2 heads, that of "),
                              HasSubstr("other has 4; expected two models with the same layers")));
  EXPECT_FALSE(path_exists(page()));
}

TEST_F(Comparison, LabelsCannotEndTheScriptThatHoldsTheData) {
  analyze_into("other", "--layers 1 --label '</script><script>alert(1)'");
  const auto done = compare("other");
  EXPECT_EQ(done.status, 0) << done.err;
  const std::string html(MappedFile(page()).text());
  EXPECT_THAT(html, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(html, HasSubstr("\\u003c/script>\\u003cscript>alert(1)"));
}

TEST_F(Comparison, RefusesResultsWithoutACommonHead) {
  analyze_into("other", "--layers 2,3");
  const auto done = compare("other");
  EXPECT_EQ(done.status, 2);
  EXPECT_THAT(done.err, HasSubstr("no head is in both"));
  EXPECT_FALSE(path_exists(page()));
}

TEST_F(Comparison, RefusesAFolderWithoutResults) {
  const auto done = compare("capture");
  EXPECT_EQ(done.status, 2);
  EXPECT_THAT(done.err, HasSubstr("no result tables"));
  EXPECT_FALSE(path_exists(page()));
}

TEST_F(Figures, WithoutNopeLayersNoFigureMentionsThem) {
  write_capture(0);
  analyze();
  EXPECT_EQ(figures("--format svg --no-report").status, 0);
  for (const auto& name : entry_names(out())) {
    if (!name.ends_with(".gp") && !name.ends_with(".txt")) continue;
    EXPECT_THAT(text(name), Not(HasSubstr("NoPE"))) << name;
  }
}

TEST_F(Figures, ClassBoundsAreThoseOfTheAnalysis) {
  analyze("--high 0.6 --low 0.25");
  EXPECT_EQ(figures("--format svg --only rq_rk_scatter").status, 0);
  const std::string script(MappedFile(out() + "/rq_rk_scatter.gp").text());
  for (const char* line : {"from 0.6, graph 0", "graph 0, first -0.25"})
    EXPECT_THAT(script, HasSubstr(line));
  EXPECT_THAT(caption("rq_rk_scatter"), HasSubstr("0.25 and 0.6"));
}

TEST_F(Figures, ComponentsSelectTheAxesOfTheCollage) {
  analyze("--components 4");
  EXPECT_EQ(figures("--format svg --only qk_collage --components 2,3").status, 0);
  EXPECT_THAT(csv("qk_collage"), HasSubstr("panel,key,shade,pc2,pc3"));
  const auto missing = figures("--format svg --only qk_collage --components 0,9");
  EXPECT_EQ(missing.status, 2);
  EXPECT_THAT(missing.err, HasSubstr("has no column pc9"));
  for (const char* wrong : {"2", "2,x", "-1,0", "1,2,3"}) {
    const auto done = figures(std::string("--components=") + wrong);
    EXPECT_EQ(done.status, 2) << wrong;
    EXPECT_THAT(done.err, HasSubstr("expected two numbers from 0 on")) << wrong;
  }
}

TEST_F(Figures, HeadPlanesShowTheChosenHead) {
  analyze("--planes-of 1.0,2.1 --pairs 3");
  EXPECT_EQ(figures("--format svg --only head_planes").status, 0);
  EXPECT_THAT(caption("head_planes"), HasSubstr("layer 1, head 0"));
  EXPECT_EQ(figures("--format svg --only head_planes --heads 2.1").status, 0);
  EXPECT_THAT(caption("head_planes"), HasSubstr("layer 2, head 1"));
  const auto other = figures("--format svg --only head_planes --heads 0.0");
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr("--planes-of 0.0"));
}

TEST_F(Figures, PlanesOfAnUnknownHeadAreRefused) {
  const auto analyze = [&](const std::string& heads) {
    return run_program("qkscope analyze " + folder_.file("capture") + " --out " + results() +
                       " --quiet --planes-of " + heads);
  };
  const auto absent = analyze("1.7");
  EXPECT_EQ(absent.status, 2);
  EXPECT_THAT(absent.err, HasSubstr("there is no query head 7 of layer 1"));
  const auto wrong = analyze("3");
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.err, HasSubstr("expected LAYER.HEAD"));
}

TEST_F(Figures, UpToDateFiguresAreNotDrawnAgain) {
  analyze("--only pca --scatter 0");
  DrawOptions options;
  options.results = results();
  options.out = out();
  options.formats = {"svg"};
  options.report = false;
  options.quiet = true;
  options.again = false;
  const Drawn first = draw_figures(options);
  EXPECT_FALSE(first.up_to_date);
  const Drawn second = draw_figures(options);
  EXPECT_TRUE(second.up_to_date);
  EXPECT_EQ(second.figures, first.figures);
  EXPECT_EQ(second.left_out, first.left_out);
  // A missing file, other options and other results make the figures out of date.
  std::filesystem::remove(out() + "/head_map_rq.svg");
  EXPECT_FALSE(draw_figures(options).up_to_date);
  EXPECT_TRUE(drawn("head_map_rq.svg"));
  options.components = {1, 2};
  EXPECT_FALSE(draw_figures(options).up_to_date);
  EXPECT_TRUE(draw_figures(options).up_to_date);
  analyze("--only pca --scatter 0 --high 0.6");
  EXPECT_FALSE(draw_figures(options).up_to_date);
  // So does drawing a single figure into the same folder.
  auto other = options;
  other.again = true;
  other.only = "head_map_rq";
  draw_figures(other);
  EXPECT_FALSE(draw_figures(options).up_to_date);
}

TEST_F(Figures, TheSummaryHasNoAbsolutePaths) {
  write_file(folder_.file("capture") + "/_saver_state.json",
             R"({"model_name": "/on/a/machine/little", "bucket_counts": {},
                 "configuration": {"dataset": {"path": "/on/a/machine/texts.jsonl", "split": "a/b"}}})");
  analyze("--head-counts 2,1");
  const std::string summary(MappedFile(results() + "/summary.json").text());
  EXPECT_THAT(summary, AllOf(HasSubstr("\"path\": \"texts.jsonl\""),
                             HasSubstr("\"split\": \"a/b\""), Not(HasSubstr("/on/a/machine"))));
}

TEST_F(Figures, PathsAreShortenedInTitles) {
  analyze("--label /somewhere/on/a/machine/little");
  EXPECT_EQ(figures("--format svg").status, 0);
  EXPECT_THAT(caption("head_map_rq"), AllOf(HasSubstr("'little'"), Not(HasSubstr("/somewhere"))));
}

TEST_F(Figures, LabelsAreNeverExecutedOrParsedAsHtml) {
  analyze("--label 'a\"b_{c}@^d`touch '" + folder_.file("touched") +
          "'`\\'\\''</script><script>alert(1)</script>'");
  const auto done = figures("--format svg");
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_FALSE(path_exists(folder_.file("touched")));
  EXPECT_THAT(std::string(MappedFile(out() + "/report.html").text()),
              Not(HasSubstr("<script>alert")));
}

TEST_F(Figures, UnknownNamesAndFormatsAreRefused) {
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

TEST_F(Figures, DamagedTablesAreReportedAndLeaveNoOutput) {
  analyze();
  write_file(results() + "/rotated.parquet", "PAR1 no more");
  const auto done = figures();
  EXPECT_EQ(done.status, 2);
  EXPECT_THAT(done.err, HasSubstr("rotated.parquet: has 12 bytes, expected "));
  EXPECT_FALSE(path_exists(out()));
}

TEST_F(Figures, ADamagedRunsJsonIsReportedAndLeavesNoOutput) {
  analyze();
  write_file(results() + "/runs.json", "{ \"runs\": ");
  const auto done = figures("--format svg");
  EXPECT_EQ(done.status, 2);
  EXPECT_THAT(done.err, HasSubstr("runs.json: not valid JSON"));
  EXPECT_FALSE(path_exists(out()));
}

TEST_F(Figures, WithoutGnuplotTheErrorNamesThePackage) {
  analyze("--only pca");
  const auto done = run_program("PATH=" + program_folder() + "; qkscope figures " + results() +
                                " --out " + out());
  EXPECT_EQ(done.status, 1);
  EXPECT_THAT(done.err, AllOf(HasSubstr("gnuplot is not installed"), HasSubstr("gnuplot-nox")));
  EXPECT_FALSE(path_exists(out()));
}

TEST_F(Figures, AnErrorOfGnuplotIsQuotedAndLeavesNoOutput) {
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
  EXPECT_THAT(entry_names(out()), IsEmpty());
}

}  // namespace
}  // namespace qkscope
