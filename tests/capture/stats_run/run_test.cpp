// Whole runs of `qkscope stats`: the same numbers for any split, resume or batch size.
#include <filesystem>
#include <numeric>

#include "base/core/numbers.h"
#include "capture/run/kill_points.h"
#include "collect_fixture.h"
#include "engine/statistics/attention_sums.h"
#include "engine/statistics/moments.h"
#include "engine/statistics/random_moments.h"
#include "qkscope/statistics.h"
#include "qkscope/tables.h"

namespace qkscope {
namespace {

class StatsRun : public CollectFixture {
 protected:
  // Reads the rows of one head from a capture of every row.
  static TestRows captured_rows(const std::string& root, const HeadId& head, std::int64_t first,
                                bool body) {
    const auto rows = read_head_file(head_file_path(root, head)).rows;
    TestRows out;
    out.heads = 1;
    out.dim = rows.head_dim;
    for (std::int64_t r = 0; r < rows.size(); ++r) {
      const auto position = rows.position[as_index(r)];
      if ((position >= first) != body) continue;
      out.position.push_back(position);
      out.values.insert(out.values.end(), rows.vectors.begin() + r * rows.head_dim,
                        rows.vectors.begin() + (r + 1) * rows.head_dim);
    }
    return out;
  }

  // Extracts the moments of one head.
  static HeadMoments one_head(const HeadMoments& all, std::int64_t head) {
    auto one = make_head_moments({1, all.dim, all.pairs, 1, false});
    one.positions = all.positions;
    const auto take = [head](const auto& from, auto& to) {
      std::copy_n(from.begin() + head * std::ssize(to), to.size(), to.begin());
    };
    take(all.mean, one.mean);
    take(all.m2, one.m2);
    take(all.ct, one.ct);
    take(all.cu, one.cu);
    take(all.m3, one.m3);
    take(all.m4, one.m4);
    take(all.min, one.min);
    take(all.max, one.max);
    take(all.pair_abs, one.pair_abs);
    take(all.norm_mean, one.norm_mean);
    take(all.norm_max, one.norm_max);
    return one;
  }
};

TEST_F(StatsRun, FinishedRunIsNotRepeated) {
  const auto first = stats("out");
  ASSERT_EQ(first.status, 0) << first.err;
  const auto expected = contents("out");
  EXPECT_TRUE(expected.contains("stats.safetensors"));
  EXPECT_TRUE(expected.contains("examples.parquet"));
  EXPECT_TRUE(expected.contains("stats_state.json"));
  const auto again = run_program(fmt::format("qkscope stats --config {} --set output.data_root={}",
                                             file("run.yaml"), file("out")));
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_NE(again.out.find("nothing to do"), std::string::npos) << again.out;
  const auto other = stats("out", "--set stats.first=2");
  EXPECT_EQ(other.status, 2);
  EXPECT_NE(other.err.find("first"), std::string::npos) << other.err;
  ASSERT_EQ(stats("out", "--set stats.first=2 --overwrite").status, 0);
  EXPECT_NE(contents("out").at("stats.safetensors"), expected.at("stats.safetensors"));
  ASSERT_EQ(stats("out", "--overwrite").status, 0);
  expect_same("out", expected);
}

TEST_F(StatsRun, RefusesSymbolicLinksAndKeepsFilesOfTheUser) {
  write_text(file("precious"), "theirs");
  ASSERT_EQ(stats("out").status, 0);
  write_text(file("out/README.md"), "notes of the user");
  ASSERT_EQ(stats("out", "--set stats.first=2 --overwrite").status, 0);
  EXPECT_EQ(contents("out").at("README.md"), "notes of the user");
  for (const auto* name : {"stats_state.json", "columns"}) {
    std::filesystem::remove_all(file("out") + "/" + name);
    std::filesystem::create_symlink(file("precious"), file("out") + "/" + name);
    const auto refused = stats("out", "--overwrite");
    EXPECT_EQ(refused.status, 2);
    EXPECT_NE(refused.err.find("is a link"), std::string::npos) << refused.err;
    std::filesystem::remove(file("out") + "/" + name);
  }
  EXPECT_EQ(contents(".").at("precious"), "theirs");
}

// Compares with direct sums over a capture with sampler `all`; tolerance 1e-12 relative to the
// scale of each sum.
TEST_F(StatsRun, MomentsEqualThoseOfACaptureOfEveryRow) {
  ASSERT_EQ(stats("out").status, 0);
  const auto statistics = read_statistics(file("out"));
  for (const bool pre : {false, true}) {
    write_config(pre ? "  capture_pre_rope: true\n" : "");
    const auto captured = capture(pre ? "pre" : "post",
                                  "--set capture.sampler.type=all "
                                  "--set capture.head_sampling=null");
    ASSERT_EQ(captured.status, 0) << captured.err;
    const auto root = file(pre ? "pre" : "post");
    const auto index = index_capture(root);
    std::vector<HeadId> heads = index.queries;
    heads.insert(heads.end(), index.keys.begin(), index.keys.end());
    for (const auto& head : heads) {
      const auto kind = head.kind == HeadKind::query ? VectorKind::query : VectorKind::key;
      const auto* found =
          statistics.find(kind, pre ? VectorStage::pre : VectorStage::post, head.layer);
      ASSERT_NE(found, nullptr);
      for (const bool body : {false, true}) {
        const auto set = one_head(body ? found->body : found->first, head.head);
        const auto rows = captured_rows(root, head, 4, body);
        auto expected = moments_of(rows, set.pairs);
        EXPECT_LT(difference(set, expected), 1e-12)
            << "layer " << head.layer << ", head " << head.head << ", body " << body;
      }
    }
  }
}

TEST_F(StatsRun, BytesDoNotDependOnBatchSizeOrThreads) {
  ASSERT_EQ(stats("expected", "--threads 1").status, 0);
  ASSERT_EQ(stats("out", "--threads 2 --set inference.batch_size=7").status, 0);
  expect_same("out", contents("expected"));
}

TEST_F(StatsRun, MergedShardsAndFoldersEqualOneRun) {
  ASSERT_EQ(stats("whole").status, 0);
  const auto whole = read_statistics(file("whole"));
  for (int i = 0; i < 3; ++i) ASSERT_EQ(stats("shards", fmt::format("--shard {}/3", i)).status, 0);
  const auto merged = run_program("qkscope merge " + file("shards"));
  ASSERT_EQ(merged.status, 0) << merged.err;
  write_documents(file("all.jsonl"), 40, 30);
  const auto text = std::string(MappedFile(file("all.jsonl")).text());
  std::size_t half = 0;
  for (int lines = 0; lines < 17; ++lines) half = text.find('\n', half) + 1;
  write_text(file("docs.jsonl"), text.substr(0, half));
  ASSERT_EQ(stats("one").status, 0);
  write_text(file("docs.jsonl"), text.substr(half));
  ASSERT_EQ(stats("two").status, 0);
  const auto joined = run_program(
      fmt::format("qkscope merge {} {} --out {}", file("one"), file("two"), file("joined")));
  ASSERT_EQ(joined.status, 0) << joined.err;
  for (const auto* folder : {"shards", "joined"}) {
    const auto found = read_statistics(file(folder));
    EXPECT_EQ(found.lengths, whole.lengths);
    for (const auto& [key, layers] : whole.moments)
      for (std::size_t i = 0; i < layers.size(); ++i) {
        const auto& other = found.moments.at(key)[i];
        EXPECT_LT(difference(other.body, layers[i].body), 1e-11);
        EXPECT_LT(difference(other.first, layers[i].first), 1e-11);
      }
    for (std::size_t i = 0; i < whole.attention.sum.size(); ++i)
      ASSERT_NEAR(found.attention.sum[i], whole.attention.sum[i],
                  1e-11 * (1.0 + std::abs(whole.attention.sum[i])));
  }
  ASSERT_EQ(stats("other", "--set stats.first=2").status, 0);
  const auto refused = run_program(
      fmt::format("qkscope merge {} {} --out {}", file("one"), file("other"), file("no")));
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.err.find("first is 4 in the first and 2 in the second"), std::string::npos)
      << refused.err;
}

TEST_F(StatsRun, MergeNamesMissingShards) {
  ASSERT_EQ(stats("shards", "--shard 1/3").status, 0);
  const auto merged = run_program("qkscope merge " + file("shards"));
  EXPECT_EQ(merged.status, 2);
  EXPECT_NE(merged.err.find("0/3 (not started)"), std::string::npos) << merged.err;
}

TEST_F(StatsRun, ResumesToTheSameBytesAfterAKillAtEachNamedPoint) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer refuses a library loaded before its own";
  write_documents(file("docs.jsonl"), 200, 10);  // four segments
  ASSERT_EQ(stats("expected").status, 0);
  const auto expected = contents("expected");
  kill_and_resume(stats_command("out"), std::filesystem::canonical(file("")).string(),
                  {{'r', "00000000.state"},
                   {'r', "00000000.docs"},
                   {'r', "00000001.seg"},
                   {'s', "/journal.jsonl", 2},
                   {'u', "00000000.state"},     // an old state is removed
                   {'s', "/journal.jsonl", 5},  // the part is complete
                   {'r', "/stats_state.json", 1},
                   {'r', "/stats.safetensors", 2},  // a file is published
                   {'r', "/stats_state.json", 2},
                   {'u', ".seg"}},
                  [&] {
                    expect_same("out", expected);
                    std::filesystem::remove_all(file("out"));
                  });
}

TEST_F(StatsRun, ChunksOfABookResumeToTheSameBytes) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer refuses a library loaded before its own";
  write_text(file("docs.jsonl"), Json{{"id", "a"}, {"text", std::string(1005, 'a')}}.dump() + "\n" +
                                     Json{{"id", "b"}, {"text", std::string(900, 'b')}}.dump());
  const std::string options = "--set tokenizer.chunk=10 --set tokenizer.chunk_min=8";
  const auto plan = Json::parse(stats("none", options + " --dry-run --json").out);
  EXPECT_EQ(plan["examples"], 190);
  EXPECT_EQ(plan["dropped_chunks"], 1);
  ASSERT_EQ(stats("expected", options).status, 0);
  const auto expected = contents("expected");
  const auto examples = read_parquet_table(file("expected/examples.parquet"));
  EXPECT_EQ(examples.rows(), 190);
  EXPECT_EQ(examples.find("source_id")->texts[99], "a#99");
  kill_and_resume(stats_command("out", options), std::filesystem::canonical(file("")).string(),
                  {{'s', "/journal.jsonl", 1}, {'s', "/journal.jsonl", 2}}, [&] {
                    expect_same("out", expected);
                    std::filesystem::remove_all(file("out"));
                  });
}

TEST_F(StatsRun, InterruptedRunSaysHowToContinue) {
  write_documents(file("docs.jsonl"), 3000, 30);
  const pid_t child =
      start_program(fmt::format("qkscope stats --config {} --set output.data_root={}",
                                file("run.yaml"), file("out")),
                    file("err"));
  const auto journal = file("out/.parts/00000-of-00001/journal.jsonl");
  wait_for_file(journal);
  ::kill(child, SIGINT);
  const int status = wait_for_program(child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) << status;
  const auto said = std::string(MappedFile(file("err")).text());
  EXPECT_NE(said.find("run the same command to continue"), std::string::npos) << said;
  EXPECT_FALSE(std::filesystem::exists(file("out/stats_state.json")));
}

TEST_F(StatsRun, DryRunReportsMemoryAndCostAndWritesNothing) {
  const auto plan =
      run_program(fmt::format("qkscope stats --config {} --set output.data_root={} --dry-run",
                              file("run.yaml"), file("out")));
  ASSERT_EQ(plan.status, 0) << plan.err;
  EXPECT_NE(plan.out.find("group C"), std::string::npos) << plan.out;
  EXPECT_NE(plan.out.find("of sums on the host"), std::string::npos) << plan.out;
  EXPECT_FALSE(std::filesystem::exists(file("out")));
  const auto json = stats("out", "--dry-run --json --groups A");
  ASSERT_EQ(json.status, 0) << json.err;
  const auto object = parse_json(json.out, "plan");
  EXPECT_EQ(object["examples"], 40);
  EXPECT_EQ(object["near_flop"], 0.0);
  EXPECT_GT(object["moments_flop"].get<double>(), 0.0);
}

TEST_F(StatsRun, EndsTheRunAtTheFirstNanAndNamesIt) {
  std::filesystem::copy(tiny_checkpoint(), file("model"), std::filesystem::copy_options::recursive);
  break_weight(file("model"), "model.layers.1.self_attn.v_proj.weight");
  const auto run = stats("out", "--set model.name=" + file("model"));
  EXPECT_EQ(run.status, 2);
  EXPECT_NE(run.err.find("layer 1, value head 0, before RoPE, text \"doc-0\" (row 0 of the "
                         "dataset): a vector holds NaN or infinity"),
            std::string::npos)
      << run.err;
  EXPECT_FALSE(std::filesystem::exists(file("out")));
}

TEST_F(StatsRun, ScoresOfHeadsEndAtNan) {
  std::filesystem::copy(tiny_checkpoint(), file("model"), std::filesystem::copy_options::recursive);
  break_weight(file("model"), "model.layers.1.self_attn.k_proj.weight");
  write_text(file("pattern.csv"), "1,0,0\n0,1,0\n0,0,1\n");
  for (const auto& options :
       std::vector<std::string>{"", "--near-only", "--pattern " + file("pattern.csv")}) {
    const auto run = run_program(
        fmt::format("qkscope heads --token-ids 1,2,3 {} --model {}", options, file("model")));
    EXPECT_EQ(run.status, 2) << options;
    EXPECT_NE(run.err.find("the attention of layer 1, head 0 holds NaN"), std::string::npos)
        << run.err;
    EXPECT_EQ(run.out, "");
  }
}

// Gemma 2 applies logit soft-capping; attention weights still sum to 1.
TEST_F(StatsRun, AttentionSumsToOneWithLogitSoftCapping) {
  // The vocabulary of the golden checkpoint lacks the letters of the byte tokenizer.
  std::string lines;
  for (int i = 0; i < 5; ++i)
    lines += Json{{"id", i}, {"text", std::string("+-*/.,!#$%&'()+-/*!,.(+)#").substr(as_index(i))}}
                 .dump() +
             "\n";
  write_text(file("docs.jsonl"), lines);
  const auto run = stats("out", fmt::format("--set model.name={} --set tokenizer.name={}",
                                            source_path("tests/golden/gemma2"), tiny_checkpoint()));
  ASSERT_EQ(run.status, 0) << run.err;
  const auto a = read_statistics(file("out")).attention;
  const auto first = std::find(a.columns.begin(), a.columns.end(), "dist_0") - a.columns.begin();
  for (std::int64_t cell = 0; cell < a.layers * a.heads * a.buckets; ++cell) {
    const double* sum = a.sum.data() + cell * std::ssize(a.columns);
    const auto rows = static_cast<double>(a.rows[as_index(cell % a.buckets)]);
    EXPECT_NEAR(std::accumulate(sum + first, sum + first + 18, 0.0), rows, 1e-5 * rows);
  }
}

// With every row sorted, the exact means lie within the bounds from histogram bins.
TEST_F(StatsRun, ExactRowsLieWithinTheBounds) {
  write_documents(file("docs.jsonl"), 1, 60);
  ASSERT_EQ(stats("out", "--exact-rows 1000").status, 0);
  const auto a = read_statistics(file("out")).attention;
  const auto place = [](const std::vector<std::string>& names, const std::string& name) {
    const auto found = std::find(names.begin(), names.end(), name);
    EXPECT_NE(found, names.end()) << name;
    return found - names.begin();
  };
  for (const std::string name : {"keys_90", "keys_99", "top_4", "top_16"})
    for (std::int64_t cell = 0; cell < a.layers * a.heads; ++cell) {
      const auto exact = a.document_sum[as_index(cell * std::ssize(a.document_columns) +
                                                 place(a.document_columns, name + "_exact"))];
      const auto mean = [&](const char* end) {
        return summarize_column(a, cell / a.heads, cell % a.heads, -1, place(a.columns, name + end))
            .mean;
      };
      EXPECT_GE(exact, mean("_low") - 1e-5) << name;
      EXPECT_LE(exact, mean("_high") + 1e-5) << name;
    }
}

// The error of a sample lies within its standard error over documents: 5 of them for every head and
// bucket.
TEST_F(StatsRun, SampledQueriesEstimateTheMeansOfAllQueries) {
  write_documents(file("docs.jsonl"), 24, 700);
  const std::string length = "--set tokenizer.max_length=640 ";
  ASSERT_EQ(stats("whole", length).status, 0);
  ASSERT_EQ(stats("sampled", length + "--set stats.all_keys_rows=1/2").status, 0);
  ASSERT_EQ(stats("again", length + "--set stats.all_keys_rows=1/2 --threads 1 "
                                    "--set inference.batch_size=7")
                .status,
            0);
  expect_same("again", contents("sampled"));
  const auto whole = read_statistics(file("whole")).attention;
  const auto sampled = read_statistics(file("sampled")).attention;
  EXPECT_TRUE(sampled.key_mass.empty());
  EXPECT_EQ(std::ranges::count(sampled.document_columns, "key_gini"), 0);
  ASSERT_EQ(sampled.columns, whole.columns);
  const auto entropy = std::ranges::find(whole.columns, "entropy") - whole.columns.begin();
  for (std::int64_t layer = 0; layer < whole.layers; ++layer)
    for (std::int64_t head = 0; head < whole.heads; ++head) {
      const auto exact = summarize_column(whole, layer, head, -1, entropy);
      const auto found = summarize_column(sampled, layer, head, -1, entropy);
      EXPECT_NE(found.mean, exact.mean);
      EXPECT_NEAR(found.mean, exact.mean, 5 * found.se);
      const auto near = summarize_column(sampled, layer, head, -1, 0);
      EXPECT_EQ(near.mean, summarize_column(whole, layer, head, -1, 0).mean);
    }
}

// Statistics can use exports of earlier statistics.
TEST_F(StatsRun, UsesExportedScalesAndFilters) {
  ASSERT_EQ(stats("out").status, 0);
  const auto options = "--set stats.kl=[fp8,fp8_exported] " + exported_to_next("out");
  const auto run = stats("next", options);
  ASSERT_EQ(run.status, 0) << run.err;
  const auto a = read_statistics(file("next")).attention;
  const auto mean = [&](const std::string& name) {
    const auto column = std::find(a.columns.begin(), a.columns.end(), name) - a.columns.begin();
    return summarize_column(a, 1, 1, -1, column).mean;
  };
  EXPECT_GT(mean("kl_fp8"), 0);
  EXPECT_GT(mean("kl_fp8_exported"), 0);
  EXPECT_LT(mean("kl_fp8_exported"), 10 * mean("kl_fp8"));
  EXPECT_GT(mean("kept_qfilter_50"), 0.1);
  EXPECT_LT(mean("kept_qfilter_50"), 1);
  const auto missing = stats("no", "--set stats.kl=[fp8_exported]");
  EXPECT_EQ(missing.status, 2);
  EXPECT_NE(missing.err.find("fp8_scales"), std::string::npos) << missing.err;
  const auto wrong = stats("no", fmt::format("--set stats.keep=[qfilter_50] --set "
                                             "stats.q_filters={} --set model.name={}",
                                             file("q-filters"), source_path("tests/golden/qwen3")) +
                                     " --set tokenizer.name=" + tiny_checkpoint());
  EXPECT_EQ(wrong.status, 2);
  EXPECT_NE(wrong.err.find("for this model"), std::string::npos) << wrong.err;
}

TEST_F(StatsRun, ModelsWithLearnedSinksAllowMomentsOnly) {
  const auto model = fmt::format("--set model.name={} --set tokenizer.name={}",
                                 source_path("tests/golden/gpt_oss"), tiny_checkpoint());
  const auto refused = stats("out", model + " --dry-run");
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.err.find("learned sinks of this gpt_oss model"), std::string::npos)
      << refused.err;
  EXPECT_EQ(stats("out", model + " --groups A --dry-run").status, 0);
}

TEST_F(StatsRun, ModelsWhoseHeadsDifferByLayerAreRefused) {
  const auto model = [](const std::string& name) {
    return fmt::format("--set model.name={} --set tokenizer.name={} --dry-run",
                       source_path("tests/golden/" + name), tiny_checkpoint());
  };
  const auto refused = stats("out", model("gemma4_text"));
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.err.find("statistics: layers of this gemma4_text model differ in the width or "
                             "number of their key heads, or use keys of other layers"),
            std::string::npos)
      << refused.err;
  EXPECT_EQ(stats("out", model("gemma4_equal_heads")).status, 0);
}

// Values of latent attention are narrower than keys: their moments are left out.
TEST_F(StatsRun, LatentAttentionHasStatisticsOfQueriesAndKeys) {
  write_text(file("docs.jsonl"), R"({"id": 0, "text": "+-*/.,!#$%&'()+-/*!,.(+)#"})");
  const auto model = fmt::format("--set model.name={} --set tokenizer.name={}",
                                 source_path("tests/golden/deepseek_v3"), tiny_checkpoint());
  const auto run = stats("out", model);
  ASSERT_EQ(run.status, 0) << run.err;
  const auto statistics = read_statistics(file("out"));
  EXPECT_EQ(statistics.dim, 16);
  EXPECT_EQ(statistics.rotary, (std::vector<std::int64_t>{6, 6}));
  EXPECT_EQ(statistics.moments.size(), 4u);
  for (const auto& [key, layers] : statistics.moments) EXPECT_NE(key.first, VectorKind::value);
  EXPECT_EQ(parse_json(statistics.ropes[0], "rope").at("begin"), 10);
  const auto refused = stats("no", model + " --set stats.kinds=[v]");
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.err.find("stats.kinds: v has 8 dimensions and q and k have 16; leave v out"),
            std::string::npos)
      << refused.err;
}

// Layers with Kimi Delta Attention are left out.
TEST_F(StatsRun, LatentAttentionWithoutRopeHasStatistics) {
  write_text(file("docs.jsonl"), R"({"id": 0, "text": "+-*/.,!#$%&'()+-/*!,.(+)#"})");
  const auto run =
      stats("out", fmt::format("--set model.name={} --set tokenizer.name={}",
                               source_path("tests/golden/kimi_linear"), tiny_checkpoint()));
  ASSERT_EQ(run.status, 0) << run.err;
  const auto statistics = read_statistics(file("out"));
  EXPECT_EQ(statistics.dim, 16);
  for (const auto& [key, layers] : statistics.moments) EXPECT_NE(key.first, VectorKind::value);
  EXPECT_EQ(statistics.moment_layers, (std::vector<std::int64_t>{2}));
}

TEST_F(StatsRun, RefusesAFolderThatHoldsACapture) {
  write_config("");
  ASSERT_EQ(capture("out").status, 0);
  write_stats_config("");
  const auto refused = stats("out");
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.err.find("holds a capture"), std::string::npos) << refused.err;
}

}  // namespace
}  // namespace qkscope
