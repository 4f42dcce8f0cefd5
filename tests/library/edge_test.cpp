// The library throws qkscope::Error and no other exception type.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>

#include <gtest/gtest.h>
#include <qkscope/analysis.h>
#include <qkscope/capture.h>
#include <qkscope/captures.h>
#include <qkscope/error.h>
#include <qkscope/experimental/study.h>
#include <qkscope/figures.h>
#include <qkscope/forward.h>
#include <qkscope/hub.h>
#include <qkscope/model.h>
#include <qkscope/tables.h>
#include <qkscope/texts.h>
#include <qkscope/tokenizer.h>

#include "paths.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

std::string demo_model() {
  return source_path("share/demo/checkpoints/LC2-1200");
}

void expect_error(const std::string& what, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << what << ": nothing was thrown";
  } catch (const Error& error) {
    EXPECT_STRNE(error.what(), "") << what;
    EXPECT_EQ(std::string(error.what()).find("internal error"), std::string::npos) << error.what();
  } catch (const std::exception& other) {
    ADD_FAILURE() << what << ": let out " << other.what();
  }
}

// Paths for which std::filesystem throws its own exceptions.
std::vector<std::string> bad_paths(const std::string& folder) {
  const std::string file = folder + "/file";
  std::ofstream(file) << "not a model";
  return {folder + "/absent", file, file + "/below", folder + "/" + std::string(300, 'x'), folder};
}

TEST(Edge, BadPathsThrowErrors) {
  const TemporaryFolder folder;
  for (const auto& path : bad_paths(folder.path())) {
    expect_error("Model::load " + path, [&] { Model::load(path); });
    expect_error("Tokenizer::load " + path, [&] { Tokenizer::load(path); });
    expect_error("read_head_file " + path, [&] { read_head_file(path); });
    expect_error("read_parquet_table " + path, [&] { read_parquet_table(path); });
    expect_error("analyze_capture " + path, [&] {
      AnalyzeOptions options;
      options.data_root = path;
      analyze_capture(options);
    });
    expect_error("draw_figures " + path, [&] {
      DrawOptions options;
      options.results = path;
      options.out = folder.path() + "/figures";
      draw_figures(options);
    });
    expect_error("write_report " + path, [&] {
      ReportOptions options;
      options.results = options.compare = path;
      options.out = folder.path() + "/report.html";
      write_report(options);
    });
    expect_error("compare_with_published " + path, [&] { compare_with_published(path); });
    expect_error("compare_runs " + path, [&] { compare_runs(path, path); });
    expect_error("list_branches " + path, [&] { list_branches({RepositoryKind::model, path}); });
    expect_error("merge_capture " + path, [&] { merge_capture(path, true); });
    expect_error("read_capture_config " + path, [&] { read_capture_config(path); });
  }
}

TEST(Edge, TensorsRefuseWrongTypesAndShapes) {
  const Tensor tensor({2, 3});
  expect_error("type", [&] { tensor.data<double>(); });
  expect_error("rows", [&] { tensor.view().rows(1, 3); });
  expect_error("shape", [&] { tensor.view().reshaped({4}); });
  static_assert(std::is_same_v<decltype(tensor.data<float>()), const float*>);
  static_assert(!std::is_convertible_v<const Tensor&, TensorView>);
}

TEST(Edge, HeadersAndLibraryHaveTheSameVersion) {
  EXPECT_EQ(library_version(), kHeaderVersion);
}

TEST(Edge, ExceptionsOfObserversPassThroughUnchanged) {
  class Throwing : public Observer {
    bool wants(HookPoint) const override { return true; }
    void observe(HookPoint, ConstTensorView) override { throw 42; }
  };
  const auto model = Model::load(demo_model(), {.device = "cpu"});
  Batch batch;
  batch.add(std::vector<std::int32_t>{1, 2, 3});
  Throwing observer;
  EXPECT_THROW(model.run(batch, observer), int);
}

TEST(Edge, BadTokensThrowErrors) {
  const auto model = Model::load(demo_model(), {.device = "cpu"});
  Collector nothing(match_hooks(model.config(), std::vector<std::string>{"logits"}), {});
  Batch batch;
  batch.add(std::vector<std::int32_t>{-5});
  expect_error("run", [&] { model.run(batch, nothing); });
}

}  // namespace
}  // namespace qkscope
