#include "qkscope/experimental/exports.h"

#include <cmath>
#include <cstring>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/io/json.h"
#include "base/io/mapped_file.h"
#include "base/io/output_file.h"
#include "capture/stats_format/stats_file.h"
#include "error_message.h"
#include "input/checkpoint/safetensors.h"
#include "planted_statistics.h"
#include "python.h"
#include "qkscope/model.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// Statistics on disk and the rows they were computed from.
class Exports : public ::testing::Test {
 protected:
  void write() {
    fs::remove_all(folder_.file("stats"));
    fs::create_directories(folder_.file("stats"));
    ListedDocuments documents(planted_.documents);
    write_statistics(folder_.file("stats"), planted_.statistics, documents);
  }
  ExportOptions options(const std::string& to, const std::string& out) const {
    ExportOptions options;
    options.statistics = folder_.file("stats");
    options.to = to;
    options.out = folder_.file(out);
    return options;
  }
  std::string refusal(const std::string& to) const {
    return bad_input_message([&] { export_statistics(options(to, "refused")); });
  }
  void all_ropes(const std::string& rope, std::int64_t rotary) {
    for (std::size_t i : {0u, 2u}) {
      planted_.statistics.ropes[i] = rope;
      planted_.statistics.rotary[i] = rotary;
    }
    for (auto& [key, layers] : planted_.statistics.moments)
      for (auto& layer : layers)
        for (auto* moments : {&layer.first, &layer.body}) {
          const auto pairs = moments->pairs == 0 ? 0 : rotary / 2;
          moments->pairs = pairs;
          moments->pair_abs.resize(static_cast<std::size_t>(moments->heads * pairs));
        }
    write();
  }

  TemporaryFolder folder_;
  PlantedStatistics planted_ = planted_statistics();
};

std::vector<double> mean_of(const std::vector<std::vector<double>>& rows) {
  std::vector<double> mean(rows.front().size());
  for (const auto& row : rows)
    for (std::size_t j = 0; j < mean.size(); ++j)
      mean[j] += row[j] / static_cast<double>(rows.size());
  return mean;
}

TEST_F(Exports, ExpectedAttentionHoldsMeanAndCovarianceOfBodyQueriesBeforeRope) {
  write();
  const auto out = export_statistics(options("expected-attention", "ea"));
  const Json config = load_json(out + "/config.json");
  EXPECT_EQ(config, (Json{{"num_layers", 3},
                          {"num_heads", 4},
                          {"head_dim", 8},
                          {"n_sink", 4},
                          {"num_samples", 3},
                          {"sample_seq_len", 33},
                          {"dataset_name", "rows"},
                          {"model_name", "planted/model"}}));
  const SafetensorsFile file(out + "/model.safetensors");
  const auto means = file.tensor("query_mean");
  const auto covariances = file.tensor("query_cov");
  EXPECT_EQ(means.shape(), (Shape{3, 4, 8}));
  EXPECT_EQ(covariances.shape(), (Shape{3, 4, 8, 8}));
  const auto rows = planted_.head_rows(VectorKind::query, VectorStage::pre, 2, 3, "body");
  const auto mean = mean_of(rows);
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_NEAR(means.data<float>()[(2 * 4 + 3) * 8 + i], mean[i], 1e-6);
    for (std::size_t j = 0; j < 8; ++j) {
      double covariance = 0;
      for (const auto& row : rows) covariance += (row[i] - mean[i]) * (row[j] - mean[j]);
      covariance /= static_cast<double>(rows.size() - 1);
      EXPECT_NEAR(covariances.data<float>()[((2 * 4 + 3) * 8 + i) * 8 + j], covariance,
                  1e-6 * std::fabs(covariance) + 1e-7);
    }
  }
}

// With one query head per key head the filter is an eigenvector of the second moment.
TEST_F(Exports, QFiltersAreNegatedEigenvectorsOfTheSecondMoment) {
  write();
  auto how = options("q-filters", "qf");
  how.kvpress_name = "model";
  const auto out = export_statistics(how);
  EXPECT_EQ(out, folder_.file("qf/nthngdy/model_qfilt"));
  EXPECT_EQ(load_json(out + "/config.json"),
            (Json{{"num_layers", 3}, {"num_kv_heads", 2}, {"kv_head_dim", 8}}));
  const SafetensorsFile file(out + "/model.safetensors");
  const auto filters = file.tensor("q_filters");
  ASSERT_EQ(filters.shape(), (Shape{3, 2, 8}));
  std::vector<double> expected(8);  // key head 1 of layer 0 serves query heads 2 and 3
  for (const std::int64_t head : {2, 3}) {
    const auto rows = planted_.head_rows(VectorKind::query, VectorStage::post, 0, head, "all");
    std::vector<double> v(8, 1.0);
    for (int step = 0; step < 20'000; ++step) {  // power iteration
      std::vector<double> next(8);
      for (const auto& row : rows) {
        double along = 0;
        for (std::size_t j = 0; j < 8; ++j) along += row[j] * v[j];
        for (std::size_t j = 0; j < 8; ++j) next[j] += along * row[j];
      }
      double length = 0;
      for (const double x : next) length += x * x;
      for (std::size_t j = 0; j < 8; ++j) v[j] = next[j] / std::sqrt(length);
    }
    const auto mean = mean_of(rows);
    double side = 0;
    for (std::size_t j = 0; j < 8; ++j) side += mean[j] * v[j];
    for (std::size_t j = 0; j < 8; ++j) expected[j] -= (side > 0 ? 0.5 : -0.5) * v[j];
  }
  for (std::size_t j = 0; j < 8; ++j) EXPECT_NEAR(filters.data<float>()[8 + j], expected[j], 1e-6);
}

TEST_F(Exports, TriattentionFileIsReadableByPlainPython) {
  write();
  const auto out = export_statistics(options("triattention", "stats.pt"));
  Json expected = Json::object();
  for (const std::int64_t layer : {0, 2})
    for (std::int64_t head = 0; head < 4; ++head) {
      const auto rows = planted_.head_rows(VectorKind::query, VectorStage::pre, layer, head, "all");
      const auto mean = mean_of(rows);
      std::vector<double> length(4);
      for (const auto& row : rows)
        for (std::size_t i = 0; i < 4; ++i)
          length[i] += std::hypot(row[i], row[i + 4]) / static_cast<double>(rows.size());
      expected[fmt::format("layer{:02}_head{:02}", layer, head)] = {
          {"q_mean_real", std::vector<double>(mean.begin(), mean.begin() + 4)},
          {"q_mean_imag", std::vector<double>(mean.begin() + 4, mean.end())},
          {"q_abs_mean", length}};
    }
  write_file(folder_.file("expected.json"), expected.dump());
  EXPECT_EQ(run_python("tests/capture/exports/read_pt.py", {out, folder_.file("expected.json")}),
            0);
}

TEST_F(Exports, TriaFileHasTheDocumentedHeaderSizeAndValues) {
  write();
  const auto out = export_statistics(options("tria", "stats.bin"));
  const MappedFile mapped(out);
  const auto text = mapped.text();
  ASSERT_EQ(text.size(), 64u + 4 * 3 + 16 * 3 * 4 * 4);
  const auto word = [&](std::size_t at) {
    std::uint32_t value = 0;
    std::memcpy(&value, text.data() + at, 4);
    return value;
  };
  const auto real = [&](std::size_t at) {
    float value = 0;
    std::memcpy(&value, text.data() + at, 4);
    return value;
  };
  const std::uint32_t header[] = {0x54524941, 2, 3, 4, 2, 8, 4};
  for (std::size_t i = 0; i < 7; ++i) EXPECT_EQ(word(4 * i), header[i]);
  EXPECT_EQ(real(28), 10000.0f);
  EXPECT_EQ(real(32), 1.0f);
  for (std::size_t at = 36; at < 64; at += 4) EXPECT_EQ(word(at), 0u);
  for (std::size_t layer = 0; layer < 3; ++layer) EXPECT_EQ(real(64 + 4 * layer), 1.0f);
  const auto value = [&](std::size_t layer, std::size_t head, std::size_t array, std::size_t i) {
    return real(64 + 12 + 4 * (((layer * 4 + head) * 4 + array) * 4 + i));
  };
  const auto rows = planted_.head_rows(VectorKind::query, VectorStage::pre, 2, 1, "all");
  const auto mean = mean_of(rows);
  double length = 0;
  for (const auto& row : rows)
    length += std::hypot(row[3], row[7]) / static_cast<double>(rows.size());
  EXPECT_NEAR(value(2, 1, 0, 3), mean[3], 1e-6);
  EXPECT_NEAR(value(2, 1, 1, 3), mean[7], 1e-6);
  EXPECT_NEAR(value(2, 1, 2, 3), length, 1e-6);
  EXPECT_NEAR(value(2, 1, 3, 3), std::hypot(mean[3], mean[7]) / length, 1e-6);
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(value(1, i / 16, i / 4 % 4, i % 4), 0.0f);  // NoPE
}

// A checkpoint with the shapes of the statistics and a single tensor.
void write_checkpoint(const std::string& folder, const Json& more = Json::object()) {
  fs::create_directories(folder);
  Json config = {{"model_type", "llama"},
                 {"hidden_size", 32},
                 {"intermediate_size", 16},
                 {"num_hidden_layers", 3},
                 {"num_attention_heads", 4},
                 {"num_key_value_heads", 2},
                 {"head_dim", 8},
                 {"vocab_size", 32},
                 {"rms_norm_eps", 1e-5},
                 {"max_position_embeddings", 64}};
  config.update(more);
  write_file(folder + "/config.json", config.dump());
  write_file(folder + "/tokenizer.json", "{}");
  Tensor weight({16, 32});
  std::fill_n(weight.data<float>(), weight.size(), 0.0f);
  const NamedTensor tensors[] = {{"model.layers.0.self_attn.k_proj.weight", weight}};
  write_safetensors(folder + "/model.safetensors", tensors);
}

TEST_F(Exports, Fp8ScalesAreAddedBesideTheLinkedCheckpoint) {
  write();
  write_checkpoint(folder_.file("model"));
  auto how = options("fp8-kv", "fp8");
  how.checkpoint = folder_.file("model");
  how.strategy = "attn_head";
  how.queries = true;
  how.margin = 1.5;
  const auto out = export_statistics(how);
  const Json index = load_json(out + "/model.safetensors.index.json");
  // 3 layers with a scale and a zero point for q, k and v each, and the tensor of the checkpoint.
  EXPECT_EQ(index["weight_map"].size(), 3u * 3 * 2 + 1);
  EXPECT_EQ(index["weight_map"]["model.layers.0.self_attn.k_proj.weight"],
            "model-weights.safetensors");
  EXPECT_EQ(index["weight_map"]["model.layers.2.self_attn.q_zero_point"], "kv_scales.safetensors");
  EXPECT_TRUE(fs::is_symlink(out + "/model-weights.safetensors"));
  EXPECT_TRUE(fs::is_symlink(out + "/tokenizer.json"));
  EXPECT_FALSE(fs::exists(out + "/model.safetensors"));
  const Json scheme = {{"num_bits", 8},
                       {"type", "float"},
                       {"strategy", "attn_head"},
                       {"dynamic", false},
                       {"symmetric", true}};
  const Json expected = {
      {"quant_method", "compressed-tensors"},
      {"format", "dense"},
      {"quantization_status", "frozen"},
      {"ignore", Json::array()},
      {"config_groups",
       {{"attention",
         {{"targets", Json::array({"LlamaAttention"})}, {"input_activations", scheme}}}}},
      {"kv_cache_scheme", scheme}};
  EXPECT_EQ(load_json(out + "/config.json")["quantization_config"], expected);
  const SafetensorsFile file(out + "/kv_scales.safetensors");
  const auto scale = file.tensor("model.layers.1.self_attn.v_scale");
  ASSERT_EQ(scale.shape(), (Shape{2, 1, 1}));
  double largest = 0;
  for (const auto& row : planted_.head_rows(VectorKind::value, VectorStage::pre, 1, 1, "all"))
    for (const double x : row) largest = std::max(largest, std::fabs(x));
  EXPECT_EQ(scale.data<float>()[1], static_cast<float>(largest / 448 * 1.5));
  EXPECT_EQ(file.tensor("model.layers.1.self_attn.v_zero_point").dtype(), DType::f8_e4m3);

  how.out = folder_.file("again");
  write_checkpoint(folder_.file("model"), {{"num_attention_heads", 2}});
  EXPECT_THAT(bad_input_message([&] { export_statistics(how); }),
              HasSubstr("give the --model they were made with"));
  write_checkpoint(folder_.file("model"), {{"quantization_config", Json::object()}});
  EXPECT_THAT(bad_input_message([&] { export_statistics(how); }),
              HasSubstr("has a quantization_config already"));
}

TEST_F(Exports, KeyRangesEqualThoseOfTheRows) {
  write();
  auto how = options("k-ranges", "ranges.safetensors");
  how.set = "body";
  const SafetensorsFile file(export_statistics(how));
  EXPECT_EQ(file.header().tensors.size(), 3u * 3 * 5);
  EXPECT_EQ(file.header().metadata.at("rope_style"), "half");
  const auto rows = planted_.head_rows(VectorKind::key, VectorStage::post, 1, 1, "body");
  double low = 1e9;
  double high = -1e9;
  for (const auto& row : rows) {
    low = std::min(low, row[6]);
    high = std::max(high, row[6]);
  }
  const auto value = [&](const char* field) {
    return file.tensor(std::string("layers.1.k.post.") + field).data<float>()[8 + 6];
  };
  EXPECT_EQ(value("min"), static_cast<float>(low));
  EXPECT_EQ(value("max"), static_cast<float>(high));
  EXPECT_EQ(value("absmax"), static_cast<float>(std::max(-low, high)));
  EXPECT_NEAR(value("mean"), mean_of(rows)[6], 1e-6);
}

TEST_F(Exports, DuoScoreIsAttentionOutsideSinkAndRecentKeys) {
  write();
  const auto out = export_statistics(options("duo", "duo"));
  EXPECT_EQ(load_json(out + "/config.json"), (Json{{"sink_size", 128}, {"recent_size", 256}}));
  const auto text = std::string(MappedFile(out + "/full_attention_heads.tsv").text());
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\t'), 3);
  const auto& a = planted_.statistics.attention;
  double need = 0;
  for (const std::int64_t head : {0, 1})
    need += 0.5 * (1 - summarize_column(a, 0, head, -1,
                                        AttentionColumnLayout::offset(NearKeyColumn::stream))
                           .mean);
  EXPECT_DOUBLE_EQ(std::stod(text), need);
}

TEST_F(Exports, RetrievalHeadsListScoresOfCountedTrials) {
  write();
  const Json heads = load_json(export_statistics(options("retrieval-heads", "heads.json")));
  EXPECT_EQ(heads.size(), 12u);
  EXPECT_EQ(heads["2-3"], Json::array({0.5}));
  planted_.statistics.retrieval.clear();
  write();
  EXPECT_THAT(refusal("retrieval-heads"), HasSubstr("stats.retrieval"));
}

TEST_F(Exports, RefusesModelsThatTheFormatCannotRepresent) {
  planted_.statistics.interleaved = true;
  write();
  for (const char* to : {"expected-attention", "triattention", "tria"})
    EXPECT_THAT(refusal(to), HasSubstr("neighbouring dimensions (2i, 2i + 1)"));
  export_statistics(options("q-filters", "fine"));
  planted_.statistics.interleaved = false;

  all_ropes(
      R"({"attention_scaling":1.0,"dim":4,"inv_freq":[1.0,0.1],"theta":100.0,"type":"default"})",
      4);
  for (const char* to : {"expected-attention", "triattention"})
    EXPECT_THAT(refusal(to), HasSubstr("RoPE turns 4 of its 8 dimensions"));
  EXPECT_EQ(fs::file_size(export_statistics(options("tria", "part.bin"))),
            64u + 4 * 3 + 16 * 3 * 4 * 2);

  all_ropes(
      R"({"attention_scaling":1.1,"dim":8,"inv_freq":[1.0,0.1,0.01,0.001],"theta":1e4,"type":"yarn"})",
      8);
  EXPECT_THAT(refusal("tria"), HasSubstr("RoPE is scaled (yarn)"));
  export_statistics(options("triattention", "yarn.pt"));

  planted_.statistics.ropes[0] =
      R"({"attention_scaling":1.0,"dim":8,"inv_freq":[1.0,0.2,0.04,0.008],"theta":625.0,"type":"default"})";
  write();
  EXPECT_THAT(refusal("triattention"), HasSubstr("different RoPE frequencies"));
  EXPECT_FALSE(fs::exists(folder_.file("refused")));
}

TEST_F(Exports, NamesMissingStatistics) {
  planted_.statistics.moments.erase({VectorKind::query, VectorStage::pre});
  write();
  EXPECT_THAT(refusal("expected-attention"), HasSubstr("no moments of q pre in layer 0"));
  planted_.statistics.attention = {};
  planted_.statistics.settings.near_keys = planted_.statistics.settings.all_keys = false;
  planted_.documents.clear();
  write();
  EXPECT_THAT(refusal("duo"), HasSubstr("group B"));
  EXPECT_THAT(refusal("somewhere"), HasSubstr("expected one of expected-attention, q-filters"));
}

TEST_F(Exports, RefusesToReplaceFilesWithoutOverwrite) {
  write();
  write_file(folder_.file("refused"), "mine");
  EXPECT_THAT(refusal("tria"), HasSubstr("--overwrite"));
  EXPECT_THAT(refusal("duo"), HasSubstr("is a file"));
  auto how = options("tria", "refused");
  how.overwrite = true;
  export_statistics(how);
  how.queries = true;
  EXPECT_THAT(bad_input_message([&] { export_statistics(how); }),
              HasSubstr("only --to fp8-kv has this option"));
}

}  // namespace
}  // namespace qkscope
