// Packing, reading ahead and running batches.
#include <thread>

#include <gmock/gmock.h>

#include "base/core/error.h"
#include "capture/run/batch_reader.h"
#include "capture/run/capture_run.h"
#include "capture/writer/part_writer.h"
#include "capture/writer/selection.h"
#include "capture_fixture.h"
#include "engine/device/cpu/cpu_backend.h"

namespace qkscope {
namespace {

using testing::HasSubstr;

class CaptureFlow : public CaptureFixture {
 protected:
  RunPlan plan(const std::string& root = "out", const std::vector<std::string>& more = {}) {
    auto overrides = more;
    overrides.push_back("output.data_root=" + file(root));
    return make_run_plan(read_capture_config(file("run.yaml"), overrides));
  }

  static std::vector<ExampleBatch> all_batches(const RunPlan& plan) {
    ExampleSource source(plan, {});
    BatchReader reader(plan, source);
    std::vector<ExampleBatch> batches;
    while (auto batch = reader.next()) batches.push_back(std::move(*batch));
    EXPECT_TRUE(reader.at_end());
    return batches;
  }
};

TEST(Packing, PacksBeyondTheMinimumWhileTokensFit) {
  const BatchSizeLimits by_number{.examples = 2, .tokens = 0};
  EXPECT_TRUE(by_number.can_add_example(1, 1'000'000, 1'000'000));
  EXPECT_FALSE(by_number.can_add_example(2, 0, 0));
  const BatchSizeLimits by_tokens{.examples = 1, .tokens = 100};
  EXPECT_TRUE(by_tokens.can_add_example(0, 0, 500));  // a batch holds at least one example
  EXPECT_TRUE(by_tokens.can_add_example(3, 60, 40));
  EXPECT_FALSE(by_tokens.can_add_example(3, 60, 41));
  EXPECT_FALSE(by_tokens.can_add_example(1024, 0, 0));  // the number of empty texts is limited
}

TEST_F(CaptureFlow, PacksConsecutiveExamplesUpToTheTokenLimit) {
  auto packed = plan();
  packed.packing = {.examples = 1, .tokens = 300};
  const auto batches = all_batches(packed);
  std::vector<std::int64_t> rows;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    EXPECT_LE(batches[i].token_count(), 300);
    if (i > 0) {
      const auto next = batches[i].examples.front().record.tokens;
      EXPECT_GT(batches[i - 1].token_count() + next, 300);  // the next example did not fit
    }
    for (const auto& example : batches[i].examples) rows.push_back(example.record.row);
  }
  EXPECT_GT(batches.size(), 3u);
  EXPECT_LT(batches.size(), 40u);
  std::vector<std::int64_t> expected(40);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(rows, expected);
}

TEST_F(CaptureFlow, SamplesDoNotDependOnPacking) {
  auto packed = plan();
  packed.packing.tokens = 500;
  const PositionSampler sampler(packed.manifest.sampler);
  for (const auto& batch : all_batches(packed))
    for (std::size_t g = 0; g < batch.samples.size(); ++g) {
      const auto& group = packed.manifest.groups[g];
      const auto& sample = batch.samples[g];
      std::vector<std::int32_t> positions;
      std::vector<std::int64_t> rows;
      for (std::size_t s = 0; s < batch.sequence.size(); ++s) {
        const auto& record = batch.examples[batch.sequence[s]].record;
        const auto seed = sampling_seed(record.key, group.layer, static_cast<char>(group.kind));
        for (const auto position : sampler.sample(seed, record.tokens)) {
          positions.push_back(position);
          rows.push_back(batch.batch.sequences[s].begin + position);
        }
        EXPECT_EQ(sample.ends[s], positions.size());
      }
      EXPECT_EQ(sample.positions, positions);
      EXPECT_EQ(sample.rows, rows);
    }
}

TEST_F(CaptureFlow, ReportsABadDocumentAfterEarlierBatches) {
  write_text(file("docs.jsonl"),
             "{\"id\": 1, \"text\": \"one\"}\n{\"id\": 2, \"text\": \"two\"}\n"
             "{\"id\": 3, \"text\": \"\xff\"}\n{\"id\": 4, \"text\": \"four\"}\n");
  auto packed = plan();
  packed.packing.tokens = 1000;
  ExampleSource source(packed, {});
  BatchReader reader(packed, source);
  const auto batch = reader.next();
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->examples.size(), 2u);
  for (int again = 0; again < 2; ++again) try {
      reader.next();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_input);
      EXPECT_THAT(error.what(), HasSubstr("docs.jsonl"));
    }
  EXPECT_FALSE(reader.at_end());
}

TEST_F(CaptureFlow, ReadsAtMostTwoBatchesAhead) {
  const auto unpacked = plan();
  ExampleSource source(unpacked, {});
  BatchReader reader(unpacked, source);
  for (int taken = 0; taken < 3; ++taken) {
    while (reader.queued_batch_count() < 2)
      std::this_thread::yield();  // no batch is taken meanwhile
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(reader.queued_batch_count(), 2u);
    ASSERT_TRUE(reader.next());
  }
}

TEST_F(CaptureFlow, StopEndsTheReaderEarly) {
  write_documents(file("docs.jsonl"), 2000, 30);
  const auto unpacked = plan();
  ExampleSource source(unpacked, {});
  std::atomic<bool> stop = false;
  BatchReader reader(unpacked, source, &stop);
  ASSERT_TRUE(reader.next());
  stop.store(true);
  int left = 0;
  while (reader.next()) ++left;
  EXPECT_LE(left, 3);  // queued batches and the one in progress
  EXPECT_FALSE(reader.at_end());
}

TEST_F(CaptureFlow, UnusedReaderCanBeDestroyed) {
  write_documents(file("docs.jsonl"), 2000, 30);
  const auto unpacked = plan();
  for (int taken = 0; taken < 5; ++taken) {
    ExampleSource source(unpacked, {});
    BatchReader reader(unpacked, source);
    for (int i = 0; i < taken; ++i) EXPECT_TRUE(reader.next());
  }
}

class CountingBackend : public CpuBackend {
 public:
  using CpuBackend::CpuBackend;

  void begin_pass(const Batch& batch) override {
    rows.push_back(batch.rows());
    CpuBackend::begin_pass(batch);
  }

  std::vector<std::int64_t> rows;
};

TEST_F(CaptureFlow, RunsEveryBatchOnOneBackend) {
  auto packed = plan();
  packed.packing.tokens = 300;
  const auto model = load_unprocessed_checkpoint(packed.model_folder);
  CountingBackend backend(model);
  std::filesystem::create_directories(file("part"));
  Journal::create(file("part"), packed.manifest);
  Journal journal(file("part"));
  CapturePartWriter writer(packed, journal);
  std::vector<std::int64_t> expected;
  for (const auto& batch : all_batches(packed)) {
    expected.push_back(batch.token_count());
    writer.capture_and_store(
        batch, [&](const Batch& rows, Observer& observer) { forward(backend, rows, observer); });
  }
  writer.flush();
  EXPECT_EQ(backend.rows, expected);
  EXPECT_EQ(journal.example_count(), 40);
  EXPECT_EQ(journal.row_count(), writer.row_count());
  EXPECT_EQ(journal.token_count(),
            std::accumulate(expected.begin(), expected.end(), std::int64_t{0}));
}

class FailingBackend : public CpuBackend {
 public:
  using CpuBackend::CpuBackend;
  void finish_pass() override { throw_failure("the GPU is gone"); }
};

TEST_F(CaptureFlow, FailedForwardPassLeavesNoThreadAndNoSegment) {
  const auto unpacked = plan();
  const auto model = load_unprocessed_checkpoint(unpacked.model_folder);
  FailingBackend backend(model);
  std::filesystem::create_directories(file("part"));
  Journal::create(file("part"), unpacked.manifest);
  Journal journal(file("part"));
  {
    ExampleSource source(unpacked, {});
    BatchReader reader(unpacked, source);
    CapturePartWriter writer(unpacked, journal);
    const auto run = [&](const Batch& rows, Observer& observer) {
      forward(backend, rows, observer);
    };
    EXPECT_THROW(writer.capture_and_store(*reader.next(), run), Error);
  }
  for (const auto& [name, content] : contents("part")) EXPECT_EQ(name, "manifest.json");
}

TEST_F(CaptureFlow, PackingDoesNotChangeTheBytesOnTheCpu) {
  const std::vector<std::string> strings = {"capture.capture_token_strings=true"};
  run_capture(plan("alone", strings), {.shard = {}, .quiet = true});
  for (const std::int64_t tokens : {64, 1000, 100'000}) {
    const auto root = fmt::format("packed{}", tokens);
    auto packed = plan(root, strings);
    packed.packing.tokens = tokens;
    const auto result = run_capture(packed, {.shard = {}, .quiet = true});
    EXPECT_EQ(result.outcome, CaptureResult::Outcome::finished);
    EXPECT_GE(result.seconds, result.forward_seconds + result.assembly_seconds);
    expect_same(root, contents("alone"));
  }
}

TEST_F(CaptureFlow, ResumesAfterAnErrorInTheMiddle) {
  run_capture(plan("expected"), {.shard = {}, .quiet = true});
  const auto whole = std::string(MappedFile(file("docs.jsonl")).text());
  auto lines = whole;
  lines.insert(lines.rfind("{\"id\""), "{\"id\": 3, \"text\": \"\xff\"}\n");
  write_text(file("docs.jsonl"), lines);
  EXPECT_THROW(run_capture(plan(), {.shard = {}, .quiet = true}), Error);
  write_text(file("docs.jsonl"), whole);
  run_capture(plan(), {.shard = {}, .quiet = true});
  expect_same("out", contents("expected"));
}

TEST_F(CaptureFlow, StoppedRunsThatAssembleAheadResumeToTheSameBytes) {
  write_documents(file("docs.jsonl"), 200, 30);  // four segments
  run_capture(plan("expected"), {.shard = {}, .quiet = true});
  const auto ahead = plan("out", {"output.assemble_ahead=true"});
  for (const std::int64_t examples : {1, 70, 100, 190}) {  // each run resumes the previous one
    std::atomic<bool> stop = false;
    const auto stopped = run_capture(ahead, {.shard = {},
                                             .quiet = true,
                                             .stop = &stop,
                                             .on_batch = [&](const CaptureProgress& progress) {
                                               stop = progress.examples >= examples;
                                             }});
    EXPECT_EQ(stopped.outcome, CaptureResult::Outcome::interrupted);
    for (const auto& [name, content] : contents("out"))
      EXPECT_EQ(name.find(".parquet"), std::string::npos) << name;
  }
  run_capture(ahead, {.shard = {}, .quiet = true});
  expect_same("out", contents("expected"));
}

TEST_F(CaptureFlow, RunningTheMissingShardsInOneCallGivesTheBytesOfOneRun) {
  run_capture(plan("expected"), {.shard = {}, .quiet = true});
  const CapturePlan shards(std::make_shared<const RunPlan>(plan()));
  run_capture(shards, {.shard = {1, 3}, .quiet = true});  // by another task
  std::atomic<bool> stop = true;
  const auto stopped = run_capture_shards(shards, 3, {.shard = {}, .quiet = true, .stop = &stop});
  EXPECT_EQ(stopped.outcome, RunOutcome::interrupted);
  const auto result = run_capture_shards(shards, 3, {.shard = {}, .quiet = true});
  EXPECT_EQ(result.outcome, RunOutcome::finished);
  EXPECT_EQ(result.examples, 40);
  expect_same("out", contents("expected"));
  EXPECT_EQ(run_capture_shards(shards, 3, {.shard = {}, .quiet = true}).outcome,
            RunOutcome::already_finished);
}

}  // namespace
}  // namespace qkscope
