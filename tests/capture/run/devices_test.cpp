// Several devices share the texts of a run: results keep batch order, and files equal those of one
// device.
#include <atomic>
#include <chrono>
#include <thread>

#include <gmock/gmock.h>

#include "base/core/error.h"
#include "capture/run/batch_reader.h"
#include "capture/run/capture_run.h"
#include "capture_fixture.h"
#include "qkscope/forward.h"

namespace qkscope {
namespace {

using testing::HasSubstr;

class Devices : public CaptureFixture {
 protected:
  RunPlan plan(const std::string& root, const std::vector<std::string>& devices) {
    return make_run_plan(
        read_capture_config(file("run.yaml"), {"output.data_root=" + file(root),
                                               "capture.capture_token_strings=true"}),
        {.device = "", .devices = devices, .dtype = {}, .batch_tokens = 200});
  }
};

// Returns the first dataset row of a batch after a delay that is longer for earlier batches.
std::int64_t slow_first_row(const ExampleBatch& batch) {
  const auto row = batch.examples.front().record.row;
  std::this_thread::sleep_for(std::chrono::milliseconds(row % 4 == 0 ? 8 : 1));
  return row;
}

using RowWorkers = BatchWorkers<std::int64_t>;

TEST_F(Devices, ReturnsResultsInBatchOrder) {
  const auto one = plan("out", {});
  ExampleSource source(one, {});
  BatchReader reader(one, source);
  std::atomic<int> made = 0;
  RowWorkers workers(reader, 3, [&](std::size_t) {
    ++made;
    return slow_first_row;
  });
  std::int64_t expected = 0;
  while (const auto done = workers.next_result()) {
    EXPECT_EQ(done->result, expected);
    EXPECT_EQ(done->batch.examples.front().record.row, expected);
    ++expected;
  }
  EXPECT_EQ(expected, 40);
  EXPECT_EQ(made, 3);
  EXPECT_TRUE(reader.at_end());
  EXPECT_FALSE(workers.next_result());
}

TEST_F(Devices, RethrowsAFailureInBatchOrder) {
  const auto one = plan("out", {});
  ExampleSource source(one, {});
  BatchReader reader(one, source);
  RowWorkers workers(reader, 3, [](std::size_t) {
    return [](const ExampleBatch& batch) {
      const auto row = batch.examples.front().record.row;
      if (row == 7) throw_failure("row 7 is broken");
      if (row < 7) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return row;
    };
  });
  for (std::int64_t row = 0; row < 7; ++row) EXPECT_EQ(workers.next_result()->result, row);
  EXPECT_THROW(workers.next_result(), Error);
}

TEST_F(Devices, RethrowsAFailureToCreateAWorker) {
  const auto one = plan("out", {});
  ExampleSource source(one, {});
  BatchReader reader(one, source);
  RowWorkers workers(reader, 2, [](std::size_t worker) {
    if (worker == 1) throw_failure("no memory");
    return slow_first_row;
  });
  const auto take_all = [&] {
    while (workers.next_result()) {
    }
  };
  EXPECT_THROW(take_all(), Error);
}

TEST_F(Devices, RunsOneBatchAtATimeUntilSettled) {
  const auto one = plan("out", {});
  ExampleSource source(one, {});
  BatchReader reader(one, source);
  std::atomic<int> computed = 0;
  std::atomic<int> running = 0;
  std::atomic<int> most_before = 0;
  int asked = 0;
  RowWorkers workers(
      reader, 4,
      [&](std::size_t) {
        return [&](const ExampleBatch& batch) {
          const int now = ++running;
          if (computed < 3) most_before = std::max(most_before.load(), now);
          const auto row = slow_first_row(batch);
          --running;
          ++computed;
          return row;
        };
      },
      [&] {
        EXPECT_EQ(running, 0);
        ++asked;
        return computed >= 3;
      });
  while (workers.next_result()) {
  }
  EXPECT_EQ(most_before, 1);
  EXPECT_EQ(asked, 4);  // before each of the first three batches and once more
}

TEST_F(Devices, UnusedWorkersCanBeDestroyed) {
  const auto one = plan("out", {});
  for (int taken = 0; taken < 4; ++taken) {
    ExampleSource source(one, {});
    BatchReader reader(one, source);
    RowWorkers workers(reader, 2, [](std::size_t) { return slow_first_row; });
    for (int i = 0; i < taken; ++i) EXPECT_TRUE(workers.next_result());
  }
}

TEST_F(Devices, SeveralDevicesGiveTheBytesOfOneDevice) {
  const auto alone = run_capture(plan("alone", {"cpu"}), {.shard = {}, .quiet = true});
  for (const std::size_t count : {2u, 5u}) {
    const auto root = fmt::format("of{}", count);
    const auto result = run_capture(plan(root, std::vector<std::string>(count, "cpu")),
                                    {.shard = {}, .quiet = true});
    EXPECT_EQ(result.outcome, CaptureResult::Outcome::finished);
    EXPECT_EQ(result.rows, alone.rows);
    EXPECT_EQ(result.tokens, alone.tokens);
    expect_same(root, contents("alone"));
  }
}

TEST_F(Devices, StoppedRunResumesWithAnotherNumberOfDevices) {
  run_capture(plan("alone", {}), {.shard = {}, .quiet = true});
  std::atomic<bool> stop = false;
  const auto first = run_capture(
      plan("out", {"cpu", "cpu", "cpu"}),
      {.shard = {}, .quiet = true, .stop = &stop, .on_batch = [&](const CaptureProgress& progress) {
         if (progress.examples >= 11) stop = true;
       }});
  EXPECT_EQ(first.outcome, CaptureResult::Outcome::interrupted);
  EXPECT_EQ(first.examples, 11);
  stop = false;
  run_capture(
      plan("out", {"cpu", "cpu"}),
      {.shard = {}, .quiet = true, .stop = &stop, .on_batch = [&](const CaptureProgress& progress) {
         if (progress.examples >= 20) stop = true;
       }});
  const auto last = run_capture(plan("out", {"cpu"}), {.shard = {}, .quiet = true});
  EXPECT_EQ(last.outcome, CaptureResult::Outcome::finished);
  expect_same("out", contents("alone"));
}

TEST_F(Devices, NamesAFailingTextAsWithOneDevice) {
  write_text(file("docs.jsonl"),
             "{\"id\": 1, \"text\": \"one\"}\n{\"id\": 2, \"text\": \"two\"}\n"
             "{\"id\": 3, \"text\": \"\xff\"}\n{\"id\": 4, \"text\": \"four\"}\n");
  const auto one = capture("one", "--ids row");
  const auto two = capture("two", "--ids row --device cpu,cpu");
  EXPECT_EQ(one.status, 2);
  EXPECT_EQ(two.status, 2);
  EXPECT_EQ(one.err, two.err);
}

TEST_F(Devices, DevicesOptionAcceptsListsAndAll) {
  ASSERT_EQ(capture("one").status, 0);
  const auto two = capture("two", "--device cpu,cpu");
  ASSERT_EQ(two.status, 0) << two.err;
  expect_same("two", contents("one"));
  const auto refused = [&](const std::string& options, const std::string& why) {
    const auto outcome = capture("refused", options);
    EXPECT_EQ(outcome.status, 2) << options;
    EXPECT_THAT(outcome.err, HasSubstr(why)) << options;
  };
  refused("--device cpu,tpu", "expected auto, cpu, cuda or cuda:N");
  refused("--device cpu,,cpu", "device: found ''");
  refused("--device all,cpu", "'all' stands alone");
  if (cuda_device_count() == 0) refused("--device all", "devices all: ");
}

TEST_F(Devices, OneGpuListedTwiceGivesTheBytesOfOneGpu) {
  if (cuda_device_count() == 0) GTEST_SKIP() << why_no_cuda();
  run_capture(plan("one", {"cuda:0"}), {.shard = {}, .quiet = true});
  const auto two = run_capture(plan("two", {"cuda:0", "cuda:0"}), {.shard = {}, .quiet = true});
  EXPECT_EQ(two.outcome, CaptureResult::Outcome::finished);
  expect_same("two", contents("one"));
}

}  // namespace
}  // namespace qkscope
