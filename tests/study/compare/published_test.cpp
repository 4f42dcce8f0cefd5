// Sets of published numbers: installed sets, and errors in user files.
#include <cmath>
#include <cstdlib>
#include <set>

#include <gmock/gmock.h>

#include "base/io/folder.h"
#include "base/io/output_file.h"
#include "error_message.h"
#include "study/compare/run_tables.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

using testing::HasSubstr;

const PublishedNumber* find(const PublishedNumbers& set, const std::string& subject,
                            const std::string& metric) {
  for (const auto& number : set.numbers)
    if (number.model == subject && number.metric == metric && number.preferred) return &number;
  return nullptr;
}

TEST(PublishedSets, InstalledSetsCanBeRead) {
  EXPECT_THAT(published_sets(), testing::ElementsAre("benchmarks", "models", "pooled", "profiles",
                                                     "small_models", "smollm3"));
  const auto training = read_published_numbers("smollm3");
  EXPECT_EQ(training.numbers.size(), 782u);
  EXPECT_EQ(training.model_names().size(), 10u);
  EXPECT_EQ(training.model_names().back(), "LC2-20K");
  const auto* ap = find(training, "S1-40K", "ap_overall");
  ASSERT_NE(ap, nullptr);
  EXPECT_EQ(ap->value, 0.585);
  EXPECT_DOUBLE_EQ(ap->se, 0.0005 / std::sqrt(3.0));
  EXPECT_DOUBLE_EQ(find(training, "S1-40K", "r_q")->se, 0.002);  // read off a figure
  const auto models = read_published_numbers("models");
  EXPECT_EQ(models.numbers.size(), 1122u);
  EXPECT_EQ(find(models, "qwen3-4b", "ap_drop")->value, 0.186);
  EXPECT_EQ(read_published_numbers("profiles").numbers.size(), 1489u);
  EXPECT_TRUE(read_published_numbers("pooled").pooled);
  EXPECT_EQ(read_published_numbers("small_models").numbers.size(), 210u);  // two numbers a row
  EXPECT_THAT(bad_input_message([] { read_published_numbers("benchmarks"); }),
              HasSubstr("benchmarks"));
}

// Where several sources publish a metric of a checkpoint, at most one of them is preferred.
TEST(PublishedSets, EachNumberHasOnePreferredSource) {
  for (const char* name : {"smollm3", "models"}) {
    std::set<std::pair<std::string, std::string>> seen;
    for (const auto& number : read_published_numbers(name).numbers)
      if (number.preferred) {
        EXPECT_TRUE(seen.emplace(number.model, number.metric).second)
            << number.model << " " << number.metric;
      }
  }
}

TEST(PublishedSets, EveryNumberHasAStandardError) {
  for (const char* name : {"smollm3", "models", "profiles", "pooled", "small_models"})
    for (const auto& number : read_published_numbers(name).numbers)
      if (!std::isnan(number.value) && number.kind != "setting") {
        EXPECT_GT(number.se, 0) << name << " " << number.model << " " << number.metric;
      }
}

TEST(PublishedSets, ProfileRowsHaveTheirBins) {
  const auto set = read_published_numbers("profiles");
  const auto* length = find(set, "qwen3-4b", "length_bins 8K-16K");
  ASSERT_NE(length, nullptr);
  EXPECT_EQ(length->value_kind, PublishedNumberKind::profile);
  EXPECT_EQ(length->bin.low, 8192);
  EXPECT_FALSE(length->bin.fraction);
  EXPECT_TRUE(find(set, "qwen3-4b", "deciles 0-10%")->bin.fraction);
  const auto* drop = find(set, "qwen3-4b", "quintiles AP_drop");
  ASSERT_TRUE(drop->minus);
  EXPECT_EQ(drop->minus->low, 0.8);
  const auto* layer = find(set, "llama3.1-8b", "layer_double_deciles d0-1 layer 14");
  ASSERT_NE(layer, nullptr);
  EXPECT_EQ(layer->layer, 14);
  EXPECT_EQ(find(set, "llama3.1-8b", "ruler_lengths 4K")->value_kind, PublishedNumberKind::metric);
  const auto* cell = find(set, "qwen3-14b", "heatmap key distance 0 query distance 106496");
  ASSERT_NE(cell, nullptr);
  EXPECT_EQ(cell->index, 106496);
  EXPECT_EQ(find(set, "qwen3-14b", "component_weights dimension 7")->index, 7);
}

// QKSCOPE_DATA points to a temporary folder.
class PublishedFiles : public testing::Test {
 protected:
  void SetUp() override {
    make_folders(folder_.file("published"));
    ::setenv("QKSCOPE_DATA", folder_.path().c_str(), 1);
  }
  void TearDown() override { ::unsetenv("QKSCOPE_DATA"); }

  std::string complaint(const std::string& rows,
                        const std::string& header = "model,quantity,value\n") const {
    write_file(file(), header + rows);
    return bad_input_message([&] { read_published_numbers(file()); });
  }
  std::string file() const { return folder_.file("published/mine.csv"); }

  TemporaryFolder folder_;
};

TEST_F(PublishedFiles, AreListedBySetName) {
  EXPECT_TRUE(published_sets().empty());
  EXPECT_EQ(bad_input_message([] { read_published_numbers("smollm3"); }),
            "the published numbers are not there; looked in " + folder_.path() +
                ". Set QKSCOPE_DATA to the folder share/qkscope of an installation");
  write_file(file(), "model,phase,measure,value\nb,late,r_q,0.5\na,early,r_k,1e-3\nb,late,r_k,1\n");
  write_file(folder_.file("published/README.md"), "");
  EXPECT_EQ(published_sets(), std::vector<std::string>{"mine"});
  EXPECT_EQ(bad_input_message([] { read_published_numbers("yours"); }),
            "--published \"yours\": known is mine, and files of your own, whose names end in .csv");
  EXPECT_THROW(read_published_numbers("../mine"), Error);
  const auto set = read_published_numbers("mine");
  EXPECT_EQ(set.model_names(), (std::vector<std::string>{"b", "a"}));
  ASSERT_EQ(set.numbers.size(), 3u);
  EXPECT_EQ(set.numbers[1].metric, "r_k");
  EXPECT_EQ(set.numbers[1].value, 1e-3);
  EXPECT_DOUBLE_EQ(set.numbers[0].se, 0.05 / std::sqrt(3.0));  // 0.5 as it is written
  EXPECT_EQ(read_published_numbers(file()).numbers.size(), 3u);
}

TEST_F(PublishedFiles, ErrorsNameFileAndRow) {
  EXPECT_EQ(complaint(""), file() + ": holds no numbers");
  EXPECT_EQ(complaint("a,r_q,0.5\na,r_k,high\n"),
            file() + ": row 3: value: found \"high\", expected a number");
  EXPECT_EQ(complaint("a,r_q,nan\n"), file() + ": row 2: value: found \"nan\", expected a number");
  EXPECT_EQ(complaint("a,r_q,\n"), file() + ": row 2: the value is missing, expected a number");
  EXPECT_EQ(complaint("a,,1\n"), file() + ": row 2: quantity is empty");
  EXPECT_EQ(complaint(",r_q,1\n"), file() + ": row 2: model is empty");
  EXPECT_EQ(complaint("a,r_q,1\na,r_q,1\n"), file() + ": r_q of a is there twice");
  EXPECT_EQ(complaint("a,r_q,1,some\n", "model,quantity,value,uncertainty\n"),
            file() + ": row 2: uncertainty: found \"some\", expected a number or a fraction");
  EXPECT_EQ(complaint("a,r_q,1,-1\n", "model,quantity,value,uncertainty\n"),
            file() + ": row 2: uncertainty: found \"-1\", expected a number or a fraction");
  EXPECT_EQ(complaint("a,1\n", "model,value\n"),
            file() +
                ": not a set of published numbers: expected the columns checkpoint (or model), "
                "quantity and value; found model, value");
  EXPECT_THAT(complaint("a,heatmap,x,0,1,0.5\n", "subject,table,bin,bin_low,bin_high,value\n"),
              HasSubstr("'query distance N' in bin"));
  EXPECT_THAT(complaint("x,0,0,z,0,0.5,0.1\n",
                        "run,layer,head,kind,pca_dim,correlation,explained_variance_ratio\n"),
              HasSubstr("row 2: kind: found \"z\", expected q or k"));
  EXPECT_THAT(bad_input_message([&] { read_published_numbers(folder_.file("none.csv")); }),
              HasSubstr("none.csv"));
}

}  // namespace
}  // namespace qkscope
