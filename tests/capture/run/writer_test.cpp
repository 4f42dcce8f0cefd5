// Captures through an external engine and CaptureWriter: the rows of a native capture, resumed to
// the same bytes.
#include <gtest/gtest.h>

#include "capture_fixture.h"
#include "model_engine.h"
#include "qkscope/capture.h"
#include "qkscope/error.h"

namespace qkscope {
namespace {

class Writer : public CaptureFixture {
 protected:
  void SetUp() override {
    CaptureFixture::SetUp();
    engine_ = std::make_shared<ModelEngine>(tiny_checkpoint());
    documents_ = read_writer_documents(file("docs.jsonl"), tiny_checkpoint());
  }

  CaptureConfig config(const std::string& root, const std::vector<std::string>& more = {}) const {
    auto overrides = more;
    overrides.push_back("output.data_root=" + file(root));
    return read_capture_config(file("run.yaml"), overrides);
  }
  CapturePlan writer_plan(const std::string& root,
                          const std::vector<std::string>& more = {}) const {
    auto overrides = more;
    overrides.emplace_back("dataset.path='-'");
    return make_plan(config(root, overrides), {}, engine_);
  }
  CaptureResult write_all(const std::string& root) {
    CaptureWriter writer(writer_plan(root));
    for (const auto& document : documents_) writer.add(document, engine_->pass());
    return writer.finish();
  }
  std::string message(const std::function<void()>& call) const {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_input);
      return error.what();
    }
    return "no error";
  }

  // Same heads, positions, ids and vectors.
  void expect_same_rows(const std::string& a, const std::string& b) const {
    const auto index = index_capture(file(a));
    EXPECT_EQ(index.queries, index_capture(file(b)).queries);
    EXPECT_EQ(index.keys, index_capture(file(b)).keys);
    for (const auto* heads : {&index.queries, &index.keys})
      for (const auto& head : *heads) {
        const auto one = read_head_file(head_file_path(file(a), head)).rows;
        const auto two = read_head_file(head_file_path(file(b), head)).rows;
        EXPECT_GT(one.size(), 0);
        EXPECT_EQ(one.position, two.position);
        EXPECT_EQ(one.example_key, two.example_key);
        EXPECT_EQ(one.bucket, two.bucket);
        EXPECT_EQ(one.vectors, two.vectors);
        EXPECT_EQ(one.sliding_window, two.sliding_window);
      }
  }

  std::shared_ptr<ModelEngine> engine_;
  std::vector<WriterDocument> documents_;
};

TEST_F(Writer, RowsOfAnEngineAreThoseOfANativeCapture) {
  run_capture(make_plan(config("native")), {.shard = {}, .quiet = true});
  const auto plan = make_plan(config("engine"), {}, engine_);
  const auto result = run_capture(plan, {.shard = {}, .quiet = true});
  EXPECT_EQ(result.examples, 40);
  expect_same_rows("native", "engine");
  const auto metadata = read_head_metadata(
      head_file_path(file("engine"), index_capture(file("engine")).queries.front()));
  EXPECT_EQ(metadata.at("engine"), "test");
  EXPECT_EQ(metadata.at("tokenizer"), "qkscope");
  EXPECT_EQ(dry_run(plan).rows, result.rows);
}

TEST_F(Writer, DocumentsOfTheCallerGiveTheRowsOfANativeCapture) {
  run_capture(make_plan(config("native")), {.shard = {}, .quiet = true});
  const auto result = write_all("written");
  EXPECT_EQ(result.outcome, RunOutcome::finished);
  EXPECT_EQ(result.examples, 40);
  expect_same_rows("native", "written");
  EXPECT_EQ(write_all("written").outcome, RunOutcome::already_finished);
}

TEST_F(Writer, AnotherWriterResumesToTheSameBytes) {
  write_all("whole");
  {
    CaptureWriter writer(writer_plan("resumed"));
    for (std::size_t i = 0; i < 15; ++i) writer.add(documents_[i], engine_->pass());
    writer.flush();
    writer.add(documents_[15], engine_->pass());  // in an open segment, lost
  }
  engine_->passes = 0;
  CaptureWriter writer(writer_plan("resumed"));
  EXPECT_EQ(writer.stored(), 15);
  EXPECT_FALSE(writer.wants(documents_[0]));
  for (std::size_t i = 1; i < documents_.size(); ++i) writer.add(documents_[i], engine_->pass());
  EXPECT_EQ(engine_->passes, 25);
  writer.finish();
  expect_same("resumed", contents("whole"));
}

TEST_F(Writer, ShardsMergeToTheSameBytes) {
  write_all("whole");
  for (std::int64_t shard = 0; shard < 3; ++shard) {
    CaptureWriter writer(writer_plan("parts"), {.shard = {shard, 3}, .quiet = true});
    for (std::size_t i = static_cast<std::size_t>(shard); i < documents_.size(); i += 3)
      writer.add(documents_[i], engine_->pass());
    EXPECT_EQ(writer.finish().outcome, RunOutcome::part_finished);
  }
  merge_capture(file("parts"), true);
  expect_same("parts", contents("whole"));
}

TEST_F(Writer, AFailedDocumentLeavesNothingBehind) {
  write_all("whole");
  CaptureWriter writer(writer_plan("failed"));
  for (const auto& document : documents_) {
    EXPECT_THROW(writer.add(document,
                            [&](const Batch& batch, Observer& observer) {
                              engine_->run(batch, observer);
                              throw Error(ErrorKind::failure, "out of memory");
                            }),
                 Error);
    writer.add(document, engine_->pass());
  }
  writer.finish();
  expect_same("failed", contents("whole"));
}

TEST_F(Writer, WrongDocumentsAreRefusedByName) {
  CaptureWriter writer(writer_plan("out"));
  writer.add(documents_[0], engine_->pass());
  EXPECT_EQ(message([&] { writer.add(documents_[0], engine_->pass()); }),
            "document 1: the id \"doc-0\" was passed before; give each document an id of its own");
  EXPECT_EQ(message([&] {
              writer.add({.ids = {1, 99999}, .id = "x"}, engine_->pass());
            }).substr(0, 48),
            "text \"x\": token id 99999 at position 1 is outsid");
  EXPECT_EQ(
      message([&] {
        writer.add({.ids = std::vector<std::int32_t>(101, 1), .id = "x"}, engine_->pass());
      }),
      "document \"x\": 101 tokens, and tokenizer.max_length is 100; cut the document or raise it");
  writer.flush();
  CaptureWriter* const other = &writer;
  EXPECT_EQ(other->documents(), 1);
}

TEST_F(Writer, AResumedWriterRefusesOtherDocuments) {
  {
    CaptureWriter writer(writer_plan("out"));
    writer.add(documents_[0], engine_->pass());
    writer.flush();
  }
  CaptureWriter writer(writer_plan("out"));
  EXPECT_EQ(
      message([&] { writer.add(documents_[1], engine_->pass()); }),
      "document 0: an earlier writer stored \"doc-0\" at this place; pass the same documents in "
      "the same order, or start again with overwrite");
  EXPECT_EQ(message([&] { writer.finish(); }),
            "0 documents were passed and 1 are stored; pass all documents again");
}

TEST_F(Writer, EnginesThatPassWrongTensorsAreRefused) {
  CaptureWriter writer(writer_plan("out", {"capture.sampler.type=all"}));
  const auto nothing = [](const Batch&, Observer&) {};
  EXPECT_NE(message([&] { writer.add(documents_[0], nothing); }).find("0 times in one forward"),
            std::string::npos);
  const auto flat = [](const Batch&, Observer& observer) {
    const Tensor values({2, 2});
    for (std::int64_t layer = 0; layer < 8; ++layer)
      if (observer.wants({Stage::rot_q, layer})) observer.observe({Stage::rot_q, layer}, values);
  };
  EXPECT_NE(message([&] { writer.add(documents_[0], flat); }).find("expected float32 of shape"),
            std::string::npos);
}

TEST_F(Writer, AnUnknownFamilyNamesThePythonCommand) {
  const auto found =
      message([&] { make_plan(config("out", {"model.config_overrides={model_type: bloom}"})); });
  EXPECT_NE(found.find("to run it through transformers: python3 -m qkscope capture --config " +
                       file("run.yaml") + " --set engine=transformers"),
            std::string::npos)
      << found;
  EXPECT_NE(message([&] {
              make_plan(config("out", {"engine=transformers"}));
            }).find("engine: transformers runs from Python only: python3 -m qkscope capture"),
            std::string::npos);
  EXPECT_EQ(message([&] { make_plan(config("out", {"engine=jax"})); }),
            "engine: found \"jax\", expected native or transformers");
}

}  // namespace
}  // namespace qkscope
