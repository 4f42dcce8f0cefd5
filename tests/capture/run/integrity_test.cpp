// Runs that must fail: changed inputs, duplicate ids, damaged parts, NaN; and cleanup after a run
// that stored nothing.
#include <gmock/gmock.h>

#include "base/io/checksum.h"
#include "base/io/file_list.h"
#include "base/io/output_file.h"
#include "capture/writer/part_run.h"
#include "capture_fixture.h"
#include "error_message.h"
#include "qkscope/captures.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

using testing::HasSubstr;

class CaptureIntegrity : public CaptureFixture {
 protected:
  void SetUp() override {
    CaptureFixture::SetUp();
    fs::copy(tiny_checkpoint(), file("model"));
  }

  // Captures with the checkpoint in file("model").
  Outcome run(const std::string& root, const std::string& options = "") const {
    return capture(root, "--set model.name=" + file("model") + " " + options);
  }

  // Runs one of two shards and removes the completion mark, the last journal line.
  void interrupt(const std::string& root) {
    const auto first = run(root, "--shard 0/2");
    ASSERT_EQ(first.status, 0) << first.err;
    const auto journal = file(root + "/.parts/00000-of-00002/journal.jsonl");
    auto text = std::string(MappedFile(journal).text());
    text.erase(text.rfind('\n', text.size() - 2) + 1);
    write_text(journal, text);
  }

  void expect_refused(const Outcome& outcome, const std::string& message) const {
    EXPECT_EQ(outcome.status, 2) << outcome.out;
    EXPECT_THAT(outcome.err, HasSubstr(message));
  }
};

TEST_F(CaptureIntegrity, RefusesToResumeWithChangedInputs) {
  interrupt("out");
  const auto change = [&](const std::string& name, const std::string& message, auto edit) {
    const auto before = std::string(MappedFile(file(name)).text());
    write_text(file(name), edit(before));
    expect_refused(run("out", "--shard 0/2"), message);
    write_text(file(name), before);
  };
  change("model/tokenizer.json", "the tokenizer changed since this run began (tokenizer.json)",
         [](const std::string& text) { return text + "\n"; });
  change("model/config.json", "the model's configuration changed since this run began",
         [](const std::string& text) {
           auto json = parse_json(text, "config");
           json["rope_theta"] = 123.0;
           return json.dump();
         });
  change("docs.jsonl", "the dataset changed since this run began (docs.jsonl)",
         [](std::string text) {
           text[text.rfind("stone")] = 'S';  // ids and rows stay the same
           return text;
         });
  change("model/model.safetensors", "the model's weights changed since this run began",
         [](std::string text) {
           text.back() ^= 1;
           return text;
         });
  EXPECT_EQ(run("out", "--shard 0/2").status, 0);
}

TEST_F(CaptureIntegrity, FingerprintCoversTheWholeGgufFile) {
  fs::remove_all(file("model"));
  fs::create_directories(file("model"));
  fs::copy(source_path("tests/golden/gguf_llama/model.gguf"), file("model/small.gguf"));
  interrupt("out");
  const auto before = std::string(MappedFile(file("model/small.gguf")).text());
  auto text = before;
  text.back() ^= 1;
  write_text(file("model/small.gguf"), text);
  expect_refused(run("out", "--shard 0/2"), "changed since this run began (small.gguf)");
  write_text(file("model/small.gguf"), before);
  EXPECT_EQ(run("out", "--shard 0/2").status, 0);
}

TEST(ShardRunOptions, InputsThatChangeDuringTheRunEndItAndDropItsSegments) {
  const TemporaryFolder folder;
  const auto weights = folder.file("weights");
  write_file(weights, "a");
  FileSnapshot inputs;
  inputs.add(weights);
  Manifest manifest;
  manifest.identity = Json::object();
  manifest.head_dim = manifest.heads_per_key_head = manifest.row_group_size = 1;
  manifest.groups.emplace_back();
  const ShardRunOptions run{.kind = kCaptureRun,
                            .data_root = folder.file("out"),
                            .inputs = inputs,
                            .manifest = manifest,
                            .quiet = true,
                            .check_inputs = [] {}};
  const auto run_part = [&] {
    ShardRun session(run);
    write_file(weights, "b");
    session.finish([](const DataRoot&, const std::vector<Journal>&) { FAIL(); });
  };
  EXPECT_THAT(bad_input_message(run_part), HasSubstr("weights: changed while it was read"));
  EXPECT_FALSE(std::filesystem::exists(folder.file("out")));
}

TEST_F(CaptureIntegrity, RefusesAFinishedCaptureOfChangedInputs) {
  ASSERT_EQ(run("out").status, 0);
  EXPECT_EQ(run("out").status, 0);
  write_documents(file("docs.jsonl"), 41, 30);
  expect_refused(run("out"), "the dataset changed since this run began (docs.jsonl)");
  EXPECT_EQ(run("out", "--overwrite").status, 0);
}

TEST_F(CaptureIntegrity, RemovesItsFoldersWhenNothingWasStored) {
  const auto config = std::string(MappedFile(file("model/config.json")).text());
  auto wrong = parse_json(config, "config");
  wrong["head_dim"] = 8;
  write_text(file("model/config.json"), wrong.dump());
  EXPECT_EQ(run("made/out").status, 2);
  EXPECT_FALSE(fs::exists(file("made")));
  write_text(file("model/config.json"), config);
  const auto mended = run("made/out");
  ASSERT_EQ(mended.status, 0) << mended.err;
  EXPECT_EQ(read_head_file(file("made/out/l00h00q/data.parquet")).rows.head_dim, 16);
  // A run killed before it stored anything does not block another run.
  fs::create_directories(file("other/.parts/00000-of-00001"));
  write_text(file("other/.parts/00000-of-00001/manifest.json"), "{\"head_dim\": 8}");
  EXPECT_EQ(run("other").status, 0);
  // Foreign files stay, and so does a capture that cannot be replaced.
  fs::create_directories(file("mine"));
  EXPECT_EQ(run("mine", "--set dataset.path=none.jsonl").status, 2);
  EXPECT_TRUE(fs::is_empty(file("mine")));
  EXPECT_EQ(run("other", "--overwrite --set dataset.path=none.jsonl").status, 2);
  write_text(file("tokenizer.json"), "{}");
  EXPECT_EQ(run("other", "--overwrite --set tokenizer.name=" + file("tokenizer.json")).status, 2);
  EXPECT_TRUE(fs::exists(file("other/_saver_state.json")));
}

TEST_F(CaptureIntegrity, TokenizerUsesTheRevisionOfTheModel) {
  const std::string main(40, 'a');
  const std::string branch(40, 'b');
  const auto repository = file("cache/models--org--tiny");
  fs::create_directories(repository + "/refs");
  fs::create_directories(repository + "/snapshots");
  write_text(repository + "/refs/main", main);
  write_text(repository + "/refs/stage", branch);
  for (const auto& commit : {main, branch})
    fs::copy(file("model"), fs::path(repository) / "snapshots" / commit);
  const auto other = repository + "/snapshots/" + main + "/tokenizer.json";
  write_text(other, "not a tokenizer");
  const auto start = "HF_HUB_OFFLINE=1 HF_HUB_CACHE=" + file("cache") + " ";
  const auto options = "--set model.name=org/tiny --set model.revision=stage ";
  const auto outcome = run_program(start + command("out", options));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const auto given =
      run_program(start + command("given", std::string(options) + "--set tokenizer.name=org/tiny"));
  EXPECT_EQ(given.status, 2) << "a tokenizer that is named comes from its main branch";
}

TEST_F(CaptureIntegrity, RefusesDuplicateIdsBeforeTheFirstForwardPass) {
  write_text(file("docs.jsonl"),
             "{\"id\": \"a\", \"text\": \"stone\"}\n{\"id\": \"b\", \"text\": \"river\"}\n"
             "{\"id\": \"a\", \"text\": \"light\"}\n");
  expect_refused(run("out"), "rows 0 and 2 have the same id \"a\" in column \"id\"");
  expect_refused(run("out", "--shard 1/2"), "rows 0 and 2 have the same id \"a\"");
  EXPECT_FALSE(fs::exists(file("out")));
  const auto numbered = run("out", "--ids row");
  ASSERT_EQ(numbered.status, 0) << numbered.err;
  write_text(file("docs.jsonl"),
             "{\"id\": null, \"text\": \"stone\"}\n{\"id\": null, \"text\": \"river\"}\n");
  expect_refused(run("null"), "rows 0 and 1 have the same id");
  EXPECT_EQ(run("null", "--set dataset.ids=row").status, 0);
  expect_refused(run("bad", "--set dataset.ids=rows"), "expected column or row");
}

TEST_F(CaptureIntegrity, DistinguishesIdsWithEqualLow32Bits) {
  write_text(file("docs.jsonl"),
             "{\"id\": 1, \"text\": \"stone\"}\n{\"id\": 4294967297, \"text\": \"river\"}\n");
  const auto outcome = run("out", "--set capture.sampler.type=all");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto rows = read_head_file(file("out/l00h00q/data.parquet")).rows;
  ASSERT_EQ(rows.example_id.size(), rows.example_key.size());
  std::map<std::int64_t, int> texts;
  for (std::size_t i = 0; i < rows.position.size(); ++i) {
    EXPECT_EQ(rows.example_id[i], 1);
    ++texts[rows.example(i)];
  }
  EXPECT_EQ(texts, (std::map<std::int64_t, int>{{1, 5}, {4294967297, 5}}));
}

TEST_F(CaptureIntegrity, EndsTheRunAtTheFirstNanAndNamesIt) {
  break_weight(file("model"), "model.layers.1.self_attn.k_proj.weight");
  const auto options = "--set capture.head_sampling=null --set capture.sampler.type=all ";
  const auto outcome = run("out", options);
  expect_refused(outcome,
                 "layer 1, key head 0, text \"doc-0\" (row 0 of the dataset), position 0: ");
  EXPECT_THAT(outcome.err, HasSubstr("nan"));
  EXPECT_FALSE(fs::exists(file("out")));
  const auto kept = run("out", std::string(options) + "--non-finite keep --json");
  ASSERT_EQ(kept.status, 0) << kept.err;
  const auto count = parse_json(kept.out, "result").at("non_finite").get<std::int64_t>();
  EXPECT_GT(count, 0);
  EXPECT_EQ(load_json(file("out/_saver_state.json")).at("non_finite_rows"), count);
}

TEST_F(CaptureIntegrity, RefusesToAssembleDamagedParts) {
  ASSERT_EQ(run("out", "--shard 0/2").status, 0);
  ASSERT_EQ(run("out", "--shard 1/2").status, 0);
  const auto part = file("out/.parts/00001-of-00002/");
  const auto refused = [&](const std::string& name, std::size_t at) {
    const auto whole = std::string(MappedFile(part + name).text());
    auto damaged = whole;
    damaged[at % whole.size()] ^= 4;
    write_text(part + name, damaged);
    const auto merged = run_program("qkscope merge --quiet " + file("out"));
    EXPECT_EQ(merged.status, 2) << name << " byte " << at % whole.size();
    write_text(part + name, whole);
  };
  std::mt19937 random(3);
  const int tries = kSanitized ? 3 : 12;
  for (int i = 0; i < tries; ++i) {
    refused("00000000.seg", random());
    refused("manifest.json", random());
    refused("journal.jsonl", random());
  }
  EXPECT_EQ(run_program("qkscope merge --quiet " + file("out")).status, 0);
}

TEST_F(CaptureIntegrity, RefusesSegmentsOfAnotherPart) {
  ASSERT_EQ(run("out", "--shard 0/2").status, 0);
  ASSERT_EQ(run("out", "--shard 1/2").status, 0);
  const auto zero = file("out/.parts/00000-of-00002/00000000.seg");
  const auto one = file("out/.parts/00001-of-00002/00000000.seg");
  const auto whole = std::string(MappedFile(one).text());
  fs::copy_file(zero, one, fs::copy_options::overwrite_existing);
  expect_refused(run_program("qkscope merge --quiet " + file("out")),
                 "not the segment that the journal means");
  write_text(one, whole);
  EXPECT_EQ(run_program("qkscope merge --quiet " + file("out")).status, 0);
}

TEST_F(CaptureIntegrity, RefusesSymbolicLinksInsideTheDataRoot) {
  fs::create_directories(file("theirs/l00h00q"));
  write_text(file("theirs/precious"), "theirs");
  write_text(file("theirs/l00h00q/data.parquet"), "theirs");
  const auto expect_link_refused = [&](const std::string& link, const std::string& target) {
    fs::remove_all(file("out"));
    ASSERT_EQ(run("out").status, 0);
    fs::remove_all(file("out/" + link));
    fs::create_symlink(file(target), file("out/" + link));
    expect_refused(run("out", "--overwrite"), "is a link");
    EXPECT_TRUE(fs::exists(file("theirs/precious")));
    EXPECT_EQ(MappedFile(file("theirs/l00h00q/data.parquet")).text(), "theirs");
    EXPECT_EQ(std::distance(fs::directory_iterator(file("theirs")), {}), 2);
  };
  expect_link_refused(".parts", "theirs");
  expect_link_refused("l00h00q", "theirs/l00h00q");
  expect_link_refused("l00h00q/data.parquet", "theirs/l00h00q/data.parquet");
  expect_link_refused("_saver_state.json", "theirs/precious");
}

TEST_F(CaptureIntegrity, RunsWithMoreShardsThanDocuments) {
  const auto first = run("out", "--shard 0/100000");
  ASSERT_EQ(first.status, 0) << first.err;
  const auto merged = run_program("qkscope merge " + file("out"));
  expect_refused(merged, "1/100000 (not started)");
  EXPECT_LT(merged.err.size(), 2000u);
  expect_refused(run("out"), "a run in 100000 shards");
  EXPECT_TRUE(fs::exists(file("out/.parts/00000-of-100000/journal.jsonl")));
}

}  // namespace
}  // namespace qkscope
