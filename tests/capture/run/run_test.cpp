// Whole runs of the program: the same bytes for any split, resume or repetition.
#include <set>

#include "capture_fixture.h"
#include "qkscope/captures.h"

namespace qkscope {
namespace {

class CaptureRun : public CaptureFixture {};

TEST_F(CaptureRun, BatchesThreadsAndShardsGiveTheSameBytes) {
  const auto first = capture("whole", "--threads 1");
  ASSERT_EQ(first.status, 0) << first.err;
  const auto expected = contents("whole");
  EXPECT_TRUE(expected.contains("_saver_state.json"));
  EXPECT_TRUE(expected.contains("l00h00q/data.parquet"));
  for (const int batch : {1, 3, 8})
    for (const int threads : {1, 2}) {
      const auto root = fmt::format("b{}t{}", batch, threads);
      const auto options =
          fmt::format("--set inference.batch_size={} --threads {}", batch, threads);
      const auto outcome = capture(root, options);
      ASSERT_EQ(outcome.status, 0) << outcome.err;
      expect_same(root, expected);
      for (int shard = 0; shard < 3; ++shard) {
        const auto part = capture(root + "s", fmt::format("{} --shard {}/3", options, shard));
        ASSERT_EQ(part.status, 0) << part.err;
      }
      const auto merged = run_program("qkscope merge --quiet " + file(root + "s"));
      ASSERT_EQ(merged.status, 0) << merged.err;
      expect_same(root + "s", expected);
    }
}

TEST_F(CaptureRun, AssemblingAheadGivesTheSameBytes) {
  write_documents(file("docs.jsonl"), 300, 30);  // five segments
  ASSERT_EQ(capture("after").status, 0);
  const auto expected = contents("after");
  const std::string ahead = "--set output.assemble_ahead=true ";
  for (const std::string options : {"--threads 1", "--threads 4", "--device cpu,cpu"}) {
    const auto outcome = capture("ahead", ahead + options);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    expect_same("ahead", expected);
    std::filesystem::remove_all(file("ahead"));
  }
  ASSERT_EQ(capture("shards", ahead + "--shard 0/2").status, 0);
  ASSERT_EQ(capture("shards", ahead + "--shard 1/2").status, 0);
  ASSERT_EQ(run_program("qkscope merge --quiet " + file("shards")).status, 0);
  expect_same("shards", expected);
}

TEST_F(CaptureRun, SniffQkAndQkscopeCaptureGiveTheSameBytes) {
  ASSERT_EQ(capture("one").status, 0);
  const auto other =
      run_program(fmt::format("qkscope capture --config {} --set output.data_root={} --quiet",
                              file("run.yaml"), file("two")));
  ASSERT_EQ(other.status, 0) << other.err;
  expect_same("two", contents("one"));
}

// Gemma 4: layer 1 has one key head of width 16, layer 0 has two of width 8, layer 5 uses the keys
// of layer 3.
TEST_F(CaptureRun, LayersMayDifferInTheirHeads) {
  write_text(file("docs.jsonl"), R"({"id": 0, "text": "+-*/.,!#$%&'()+-/*!,.(+)#"})"
                                 "\n"
                                 R"({"id": 1, "text": "#)+(.,!*/-+)('&%$#!,./*-+"})");
  const auto model = fmt::format(
      "--set model.name={} --set tokenizer.name={} --set capture.sampler.type=all "
      "--set capture.head_sampling=null ",
      source_path("tests/golden/gemma4_text"), tiny_checkpoint());
  const auto run = capture("out", model);
  ASSERT_EQ(run.status, 0) << run.err;
  const auto head = [&](const std::string& name) {
    return read_head_file(file("out/" + name + "/data.parquet"));
  };
  EXPECT_EQ(head("l00h03q").rows.head_dim, 8);
  EXPECT_EQ(head("l00h03q").metadata.at("k_head"), "1");
  EXPECT_EQ(head("l01h03q").rows.head_dim, 16);
  EXPECT_EQ(head("l01h03q").metadata.at("k_head"), "0");
  EXPECT_FALSE(std::filesystem::exists(file("out/l01h01k")));
  EXPECT_EQ(head("l05h00k").rows.vectors, head("l03h00k").rows.vectors);
  EXPECT_NE(head("l05h00k").rows.vectors, head("l01h00k").rows.vectors);
  const auto expected = contents("out");
  EXPECT_NE(expected.at("README.md").find("8, 16"), std::string::npos);
  for (int shard = 0; shard < 2; ++shard)
    ASSERT_EQ(capture("parts", fmt::format("{} --shard {}/2", model, shard)).status, 0);
  ASSERT_EQ(run_program("qkscope merge --quiet " + file("parts")).status, 0);
  expect_same("parts", expected);
  const auto refused = capture("no", model + "--set capture.capture_pre_rope=true");
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.err.find("capture.capture_pre_rope: layer 4 uses the rotated keys of layer 2"),
            std::string::npos)
      << refused.err;
  EXPECT_FALSE(std::filesystem::exists(file("no")));
}

TEST_F(CaptureRun, FinishedRunIsNotRepeated) {
  ASSERT_EQ(capture("out").status, 0);
  const auto before = std::filesystem::last_write_time(file("out/l00h00q/data.parquet"));
  std::filesystem::remove(file("docs.jsonl"));  // not read again
  const auto again = run_program(
      fmt::format("sniff-qk --config {} --set output.data_root={}", file("run.yaml"), file("out")));
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_NE(again.out.find("nothing to do"), std::string::npos) << again.out;
  EXPECT_EQ(std::filesystem::last_write_time(file("out/l00h00q/data.parquet")), before);
}

TEST_F(CaptureRun, RefusesAnotherConfigurationAndNamesTheDifference) {
  ASSERT_EQ(capture("out").status, 0);
  const auto expected = contents("out");
  const auto other = capture("out", "--set capture.min_bucket_size=32");
  EXPECT_EQ(other.status, 2);
  EXPECT_NE(other.err.find("capture.min_bucket_size: 16 there, 32 now"), std::string::npos)
      << other.err;
  expect_same("out", expected);
  ASSERT_EQ(capture("out", "--set capture.min_bucket_size=32 --overwrite").status, 0);
  EXPECT_NE(contents("out").at("l00h00q/data.parquet"), expected.at("l00h00q/data.parquet"));
  ASSERT_EQ(capture("out", "--overwrite").status, 0);
  expect_same("out", expected);
}

TEST_F(CaptureRun, OverwriteKeepsForeignFiles) {
  ASSERT_EQ(capture("out").status, 0);
  write_text(file("out/notes.txt"), "mine");
  ASSERT_EQ(capture("out", "--overwrite").status, 0);
  EXPECT_EQ(contents("out").at("notes.txt"), "mine");
}

TEST_F(CaptureRun, LimitTakesTheFirstExamples) {
  ASSERT_EQ(capture("out", "--limit 5").status, 0);
  const auto expected = contents("out");
  ASSERT_EQ(capture("same", "--set dataset.max_samples=5").status, 0);
  expect_same("same", expected);
}

TEST_F(CaptureRun, KeepsAtMostMaxRowsPerExample) {
  ASSERT_EQ(capture("all").status, 0);
  const std::string limit = "--set capture.max_rows_per_batch=2 ";
  ASSERT_EQ(capture("few", limit).status, 0);
  const auto all = read_head_file(file("all/l00h00q/data.parquet")).rows;
  const auto few = read_head_file(file("few/l00h00q/data.parquet")).rows;
  std::map<std::int32_t, int> wanted;  // rows per example
  std::set<std::pair<std::int32_t, std::int32_t>> before;
  for (std::size_t i = 0; i < all.position.size(); ++i) {
    ++wanted[all.example_id[i]];
    before.emplace(all.example_id[i], all.position[i]);
  }
  std::map<std::int32_t, int> found;
  for (std::size_t i = 0; i < few.position.size(); ++i) {
    ++found[few.example_id[i]];
    EXPECT_TRUE(before.contains({few.example_id[i], few.position[i]}));
  }
  EXPECT_LT(few.position.size(), all.position.size());
  for (const auto& [example, rows] : wanted) EXPECT_EQ(found[example], std::min(rows, 2));
  ASSERT_EQ(capture("batched", limit + "--set inference.batch_size=8").status, 0);
  EXPECT_EQ(contents("batched").at("l00h00q/data.parquet"),
            contents("few").at("l00h00q/data.parquet"));
}

TEST_F(CaptureRun, DebugLoggingReportsEveryNthBatch) {
  const auto outcome = run_program(
      fmt::format("sniff-qk --config {} --set output.data_root={} --set inference.batch_size=8 "
                  "--set inference.debug_logging=true "
                  "--set inference.debug_log_every_n_batches=2",
                  file("run.yaml"), file("out")));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("batch 2: 8 examples"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("batch 4: 8 examples"), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.err.find("batch 3:"), std::string::npos) << outcome.err;
}

TEST_F(CaptureRun, MergeNamesMissingShards) {
  ASSERT_EQ(capture("out", "--shard 1/3").status, 0);
  const auto merged = run_program("qkscope merge " + file("out"));
  EXPECT_EQ(merged.status, 2);
  EXPECT_NE(merged.err.find("0/3 (not started), 2/3 (not started)"), std::string::npos)
      << merged.err;
  const auto whole = capture("out");
  EXPECT_EQ(whole.status, 2);
  EXPECT_NE(whole.err.find("a run in 3 shards"), std::string::npos) << whole.err;
  const auto nothing = run_program("qkscope merge " + file("empty"));
  EXPECT_EQ(nothing.status, 2);
  EXPECT_NE(nothing.err.find("no parts of a capture"), std::string::npos) << nothing.err;
}

TEST_F(CaptureRun, OverwriteRestartsShards) {
  ASSERT_EQ(capture("expected").status, 0);
  for (int shard = 0; shard < 3; ++shard)
    ASSERT_EQ(
        capture("out", fmt::format("--shard {}/3 --set capture.min_bucket_size=8", shard)).status,
        0);
  EXPECT_EQ(capture("out", "--shard 0/2").status, 2);
  for (int shard = 0; shard < 2; ++shard) {
    const auto outcome = capture("out", fmt::format("--shard {}/2 --overwrite", shard));
    ASSERT_EQ(outcome.status, 0) << outcome.err;
  }
  ASSERT_EQ(run_program("qkscope merge --quiet " + file("out")).status, 0);
  expect_same("out", contents("expected"));
}

TEST_F(CaptureRun, DryRunPredictsTheExactResult) {
  const auto dry =
      run_program(fmt::format("sniff-qk --config {} --set output.data_root={} "
                              "--dry-run --json",
                              file("run.yaml"), file("out")));
  ASSERT_EQ(dry.status, 0) << dry.err;
  EXPECT_FALSE(std::filesystem::exists(file("out")));
  const Json plan = parse_json(dry.out, "plan");
  EXPECT_EQ(plan["examples"], 40);
  EXPECT_EQ(plan["device"], "cpu");
  EXPECT_EQ(plan["dtype"], "float32");
  EXPECT_GT(plan["memory"], 0);
  EXPECT_EQ(plan["largest_batch"], plan["longest"]);
  EXPECT_GT(plan["bytes"], plan["rows"].get<std::int64_t>() * 16 * 4);
  ASSERT_EQ(capture("out").status, 0);
  std::int64_t rows = 0;
  const Json state = load_json(file("out/_saver_state.json"));
  for (const auto& [bucket, count] : state["bucket_counts"].items()) rows += count.get<int>();
  EXPECT_EQ(plan["rows"], rows);
  for (const auto& [layer, heads] : plan["heads"].items())
    for (const auto* kind : {"q", "k"})
      for (const auto& head : heads[kind])
        EXPECT_TRUE(std::filesystem::exists(file(fmt::format(
            "out/l{:02}h{:02}{}/data.parquet", std::stoi(layer), head.get<int>(), kind))));
}

TEST_F(CaptureRun, GpuOptionsChangeNothingOnTheCpu) {
  ASSERT_EQ(capture("plain").status, 0);
  const auto options = "--device cpu --deterministic --device-memory 8GiB --batch-tokens 100";
  ASSERT_EQ(capture("out", options).status, 0);
  expect_same("out", contents("plain"));
  EXPECT_EQ(capture("out").status, 0);  // the identity of the capture is the same
  const auto file_of_head = read_head_file(file("out/l00h00q/data.parquet"));
  EXPECT_EQ(file_of_head.metadata.at("dtype"), "float32");
}

TEST_F(CaptureRun, DtypeOptionOverridesTheConfiguration) {
  ASSERT_EQ(capture("set", "--set model.dtype=bfloat16").status, 0);
  ASSERT_EQ(capture("out", "--dtype bf16 --set inference.autocast_dtype=float16").status, 0);
  expect_same("out", contents("set"));
}

TEST_F(CaptureRun, JsonReportsTheResult) {
  const auto outcome = capture("out", "--json");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json result = parse_json(outcome.out, "result");
  EXPECT_EQ(result["outcome"], "finished");
  EXPECT_EQ(result["examples"], 40);
  EXPECT_GT(result["tokens"], 0);
  EXPECT_GT(result["rows"], 0);
  double parts = 0.0;
  for (const auto* part : {"load", "forward", "input", "assembly"})
    parts += result[fmt::format("{}_seconds", part)].get<double>();
  EXPECT_GT(parts, 0.0);
  EXPECT_LE(parts, result["seconds"]);
  const Json again = parse_json(capture("out", "--json").out, "result");
  EXPECT_EQ(again["outcome"], "already finished");
}

TEST_F(CaptureRun, DryRunNeedsNoWeights) {
  std::filesystem::create_directories(file("bare"));
  for (const auto* name : {"config.json", "tokenizer.json", "tokenizer_config.json"})
    std::filesystem::copy_file(tiny_checkpoint() + "/" + name, file(std::string("bare/") + name));
  const auto dry = run_program(fmt::format("sniff-qk --config {} --set model.name={} --dry-run",
                                           file("run.yaml"), file("bare")));
  EXPECT_EQ(dry.status, 0) << dry.err;
  EXPECT_NE(dry.out.find("40"), std::string::npos) << dry.out;
  EXPECT_NE(dry.out.find("time       unknown: the weights are not on this machine"),
            std::string::npos)
      << dry.out;
}

TEST_F(CaptureRun, FindsHubIdsInTheCache) {
  namespace fs = std::filesystem;
  const std::string commit(40, 'a');
  for (const auto* kind : {"models--org--tiny", "datasets--org--texts"}) {
    const auto repository = file(std::string("cache/") + kind);
    fs::create_directories(repository + "/refs");
    write_text(repository + "/refs/main", commit);
    fs::create_directories(fs::path(repository) / "snapshots" / commit);
  }
  fs::copy(tiny_checkpoint(), file("cache/models--org--tiny/snapshots/" + commit));
  fs::create_directories(file("cache/datasets--org--texts/snapshots/" + commit + "/data"));
  fs::copy(file("docs.jsonl"),
           file("cache/datasets--org--texts/snapshots/" + commit + "/data/train-0.jsonl"));
  const auto options = "--set model.name=org/tiny --set dataset.path=org/texts";
  const auto offline = "HF_HUB_OFFLINE=1 HF_HUB_CACHE=" + file("cache") + " ";
  const auto outcome = run_program(offline + command("out", options));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(contents("out").at("README.md").find(commit), std::string::npos);
  const auto missing = run_program(offline + command("other", "--set dataset.path=org/none"));
  EXPECT_EQ(missing.status, 2);
  EXPECT_NE(missing.err.find("qkscope hub download org/none --dataset"), std::string::npos)
      << missing.err;
}

TEST_F(CaptureRun, RefusesToResumeWithAChangedDataset) {
  ASSERT_EQ(capture("out", "--shard 0/2").status, 0);
  // Remove the completion mark, the last journal line, to simulate an interruption.
  const auto journal = file("out/.parts/00000-of-00002/journal.jsonl");
  const auto text = std::string(MappedFile(journal).text());
  write_text(journal, text.substr(0, text.rfind('\n', text.size() - 2) + 1));
  write_documents(file("docs.jsonl"), 20, 30);
  write_text(file("docs.jsonl"), "{\"id\": \"new\", \"text\": \"first\"}\n" +
                                     std::string(MappedFile(file("docs.jsonl")).text()));
  const auto outcome = capture("out", "--shard 0/2");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.err.find("the dataset changed since this run began"), std::string::npos)
      << outcome.err;
}

}  // namespace
}  // namespace qkscope
