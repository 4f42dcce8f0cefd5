// Figures of small hand-made tables: attention kinds, both classes, model-free plasticity, and the
// layout of axes, labels and panels.
#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/core/text.h"
#include "base/io/mapped_file.h"
#include "qkscope/figures.h"
#include "qkscope/tables.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using enum Table::Type;

constexpr int kLayers = 24;
constexpr int kHeads = 14;

class MadeTables : public ::testing::Test {
 protected:
  // Writes NAME.parquet. `columns` have types; each row starts with the model.
  Table head_table(const std::vector<std::pair<std::string, Table::Type>>& columns) const {
    Table table;
    table.column("model", text).column("layer", integer).column("head", integer);
    table.column("rope", text);
    if (kinds_) table.column("attention", text);
    for (const auto& [name, type] : columns) table.column(name, type);
    return table;
  }
  std::vector<Table::Cell> head_cells(std::int64_t layer, std::int64_t head) const {
    std::vector<Table::Cell> cells = {std::string("org/model-1b"), layer, head,
                                      std::string("rope")};
    if (kinds_) cells.emplace_back(attention(layer));
    return cells;
  }
  static std::string attention(std::int64_t layer) {
    return layer % 6 == 5 ? "full" : "sliding:512";
  }
  static void add(Table& table, std::vector<Table::Cell> cells,
                  const std::vector<Table::Cell>& more) {
    cells.insert(cells.end(), more.begin(), more.end());
    table.add(std::move(cells));
  }
  void write(const std::string& name, const Table& table) const {
    table.write_parquet(folder_.file(name + ".parquet"));
  }

  // Plasticity 0.2 on sliding layers, 0.8 on full ones; the context has 4096 tokens.
  void write_plasticity() const {
    auto buckets = head_table(
        {{"q_bucket", integer}, {"k_bucket", integer}, {"ap_bucket", real}, {"n_pairs", integer}});
    auto columns = std::vector<std::pair<std::string, Table::Type>>{
        {"bin", integer}, {"position", real}, {"ap", real}};
    if (kinds_) columns.emplace_back("ap_free", real);
    auto profile = head_table(columns);
    auto pairs = head_table({{"key_distance_low", real},
                             {"key_distance_high", real},
                             {"query_distance_low", real},
                             {"query_distance_high", real},
                             {"ap", real},
                             {"n_pairs", integer}});
    for (int layer = 0; layer < kLayers; ++layer) {
      const double ap = attention(layer) == "full" ? 0.8 : 0.2;
      for (std::int64_t bin = 0; bin < 4; ++bin) {
        const auto start = 1024.0 * static_cast<double>(bin);
        add(buckets, head_cells(layer, 0), {bin, std::int64_t{0}, ap, std::int64_t{1000}});
        std::vector<Table::Cell> point = {bin, start + 512, ap};
        if (kinds_) point.emplace_back(ap + 0.05);
        add(profile, head_cells(layer, 0), point);
        add(pairs, head_cells(layer, 0),
            {start, start + 1024, start / 4, start / 4 + 256, ap, std::int64_t{1000}});
      }
    }
    write("head_bucket_plasticity", buckets);
    write("head_profile", profile);
    write("pair_heatmap", pairs);
  }

  void write_taxonomy() const {
    auto table = head_table({{"class", text}, {"class_axis", text}, {"r_q_axis", real}});
    for (int layer = 0; layer < kLayers; ++layer)
      add(table, head_cells(layer, 0),
          {std::string("mixed"), std::string("position_dominated"), -0.9});
    write("taxonomy", table);
  }

  Drawn draw(const std::string& only, const std::string& attention = "") const {
    DrawOptions options;
    options.results = folder_.path();
    options.out = folder_.file("figures");
    options.only = only;
    options.formats = {"svg"};
    options.quiet = true;
    options.attention = attention;
    return draw_figures(options);
  }
  std::string drawn(const std::string& file) const {
    return std::string(MappedFile(folder_.file("figures/" + file)).text());
  }
  // Rows of NAME.csv without the header, as fields.
  std::vector<std::vector<std::string>> rows(const std::string& name) const {
    std::vector<std::vector<std::string>> all;
    for (const auto& line : split(drawn(name + ".csv"), '\n'))
      if (!line.empty()) all.push_back(split(line, ','));
    all.erase(all.begin());
    return all;
  }

  bool kinds_ = true;  // the tables have the column `attention`
  TemporaryFolder folder_;
};

TEST_F(MadeTables, BucketHeatmapNeverAveragesSlidingAndFullHeads) {
  write_plasticity();
  draw("bucket_heatmap");
  std::map<std::string, std::set<std::string>> values;  // by attention kind
  for (const auto& row : rows("bucket_heatmap")) values[row.back()].insert(row[5]);
  EXPECT_EQ(values["full"], std::set<std::string>{"0.8"});
  EXPECT_EQ(values["sliding:512"], std::set<std::string>{"0.2"});
  EXPECT_THAT(drawn("bucket_heatmap.gp"), HasSubstr("'sliding attention, 512 tokens'"));
}

TEST_F(MadeTables, ProfilesHaveAPanelPerAttentionKindAndAModelFreeLine) {
  write_plasticity();
  draw("plasticity_profile");
  const auto all = rows("plasticity_profile");
  std::map<std::string, std::pair<std::string, std::string>> means;  // by panel: ap, ap_free
  for (const auto& row : all)
    if (row[1] == "-1") means[row[0]] = {row[3], row[6]};
  ASSERT_EQ(means.size(), 2u);
  EXPECT_DOUBLE_EQ(std::stod(means["0"].first), 0.8);
  EXPECT_NEAR(std::stod(means["0"].second), 0.85, 1e-12);
  EXPECT_DOUBLE_EQ(std::stod(means["1"].first), 0.2);
  EXPECT_THAT(drawn("plasticity_profile.gp"), HasSubstr(":7 with lines"));
  EXPECT_THAT(drawn("plasticity_profile.txt"), HasSubstr("ap_free"));
}

TEST_F(MadeTables, OlderTablesHaveOnePanelAndNoModelFreeLine) {
  kinds_ = false;
  write_plasticity();
  for (const char* name : {"plasticity_profile", "bucket_heatmap", "plasticity_heatmap"}) {
    draw(name);
    EXPECT_THAT(drawn(std::string(name) + ".gp"), HasSubstr("multiplot layout 1,1")) << name;
  }
  EXPECT_THAT(drawn("plasticity_profile.gp"), Not(HasSubstr(":7 with lines")));
}

TEST_F(MadeTables, AttentionSelectsHeadsOfOneKind) {
  write_plasticity();
  draw("bucket_heatmap", "sliding:512");
  for (const auto& row : rows("bucket_heatmap")) EXPECT_EQ(row[5], "0.2");
}

TEST_F(MadeTables, BothAxesOfTheDistanceHeatmapHaveOneNumberFormat) {
  write_plasticity();
  draw("plasticity_heatmap");
  const auto script = drawn("plasticity_heatmap.gp");
  EXPECT_THAT(script, HasSubstr("set format y '%.0f'"));
  EXPECT_THAT(script, Not(HasSubstr("%c")));
}

TEST_F(MadeTables, HeadMapsShowBothClassesTheModelAndSlidingLayers) {
  write_taxonomy();
  draw("head_map_class");
  draw("head_map_class_axis");
  draw("head_map_rq_axis");
  EXPECT_EQ(rows("head_map_class").front().back(), "mixed");
  EXPECT_EQ(rows("head_map_class_axis").front().back(), "position_dominated");
  EXPECT_EQ(rows("head_map_rq_axis").front()[2], "0.9");
  const auto script = drawn("head_map_class_axis.gp");
  EXPECT_THAT(script, HasSubstr("'org/model-1b'"));
  EXPECT_THAT(script, HasSubstr("'sliding layers'"));
}

TEST_F(MadeTables, TheReportHasBothClassesAndAttentionKinds) {
  write_taxonomy();
  auto metrics = head_table({});
  for (const char* name : {"q_R2_pos", "q_beta_norm", "ap_profile_overall", "ap_overall",
                           "ap_first20", "ap_last20", "ap_drop", "ap_free_overall"})
    metrics.column(name, real);
  for (int layer = 0; layer < kLayers; ++layer)
    add(metrics, head_cells(layer, 0), {0.1, 0.1, 0.5, 0.5, 0.6, 0.4, 0.2, 0.45});
  write("head_metrics", metrics);
  draw("");
  const auto page = drawn("report.html");
  EXPECT_THAT(page, HasSubstr(R"("names":["sliding:512","full"]})"));
  EXPECT_THAT(page, HasSubstr(R"("names":["position_dominated"]})"));
  EXPECT_THAT(page, HasSubstr(R"({"data":)"));
  EXPECT_THAT(page, HasSubstr(R"("name":"ap_free_overall")"));
}

TEST_F(MadeTables, CollagesSpreadOverLayersAndHeadNumbers) {
  auto scatter = head_table(
      {{"side", text}, {"position", integer}, {"pc0", real}, {"pc1", real}, {"a", real}});
  for (std::int64_t layer = 0; layer < kLayers; ++layer)
    for (std::int64_t head = 0; head < kHeads; ++head)
      for (const char* side : {"q", "k"})
        add(scatter, head_cells(layer, head),
            {std::string(side), std::int64_t{1}, static_cast<double>(head), 0.5, 0.5});
  write("head_scatter", scatter);
  draw("qk_collage");
  std::set<std::string> layers;
  std::set<std::string> heads;
  int odd = 0;
  for (const auto& row : rows("qk_collage")) {
    if (layers.insert(row[6]).second) odd += std::stoi(row[6]) % 2;
    heads.insert(row[7]);
  }
  EXPECT_EQ(layers.size(), 12u);
  EXPECT_GT(odd, 2);
  EXPECT_LT(odd, 10);
  EXPECT_GE(heads.size(), 8u);
}

TEST_F(MadeTables, ScattersNameTheHeadsFarthestFromTheMedian) {
  auto rotated = head_table({{"separation_strength", real}, {"bias_strength", real}});
  for (std::int64_t layer = 0; layer < kLayers; ++layer) {
    const double share = static_cast<double>(layer) / kLayers;
    const bool outlier = layer == 7;
    add(rotated, head_cells(layer, 3),
        {outlier ? 0.95 : 0.1 + 0.1 * share, outlier ? 10.0 : 0.01 + 0.01 * share});
  }
  write("rotated", rotated);
  draw("bias_vs_separation");
  for (const auto& row : rows("bias_vs_separation"))
    if (row[4] == "7") {
      EXPECT_EQ(row[6], "7.3");
    }
  const auto script = drawn("bias_vs_separation.gp");
  EXPECT_THAT(script, HasSubstr("set ytics 10\nset mytics 10\n"));
}

TEST_F(MadeTables, ComponentWeightsEndAtTheLastDimension) {
  auto weights = head_table({{"component", integer}, {"component_weight", real}});
  for (std::int64_t i = 0; i < 256; ++i) add(weights, head_cells(0, 0), {i, 1.0 / 256});
  write("head_component_weights", weights);
  draw("component_weights");
  EXPECT_THAT(drawn("component_weights.gp"), HasSubstr("set xrange [-1:256]\n"));
}

TEST_F(MadeTables, TheLabelOfDistanceByClassIsInsideTheFigure) {
  write_taxonomy();
  auto distance = head_table({{"width", integer}, {"mass", real}});
  for (std::int64_t width = 0; width < 8; ++width) add(distance, head_cells(0, 0), {width, 0.125});
  write("distance", distance);
  draw("distance_by_class");
  EXPECT_THAT(drawn("distance_by_class.gp"),
              HasSubstr("set label 'share of attention' at screen 0.1/width"));
}

}  // namespace
}  // namespace qkscope
