// Score attribution of a model made by hand, of features, and of the demo's induction heads.
#include <cmath>
#include <random>

#include <gmock/gmock.h>

#include "base/io/output_file.h"
#include "engine/model/loaded_checkpoint.h"
#include "error_message.h"
#include "golden_text.h"
#include "qkscope/experimental/attribution.h"
#include "qkscope/experimental/heads.h"
#include "qkscope/texts.h"
#include "qkscope/tokenizer.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kWidth = 32;
constexpr std::int64_t kPrivate = 24;  // only head 0.3 writes dimensions from here on

constexpr const char* kPlanted =
    R"({"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4,
  "num_key_value_heads": 4, "intermediate_size": 16, "vocab_size": 20, "tie_word_embeddings": true})";

// Whether an entry of a weight of the planted model is zero: head 0.3 alone writes the private
// dimensions, and head 1.2 reads nothing else.
bool is_zero(const std::string& name, std::int64_t row, std::int64_t column) {
  const bool second_layer = name.find("layers.1.") != std::string::npos;
  if (name.ends_with("embed_tokens.weight")) return column >= kPrivate;
  if (name.ends_with("down_proj.weight")) return row >= kPrivate;
  if (name.ends_with("o_proj.weight") && !second_layer)
    return (column / 8 == 3) != (row >= kPrivate);
  const bool reads = name.ends_with("q_proj.weight") || name.ends_with("k_proj.weight");
  return reads && second_layer && row / 8 == 2 && column < kPrivate;
}

void write_planted_model(const TemporaryFolder& folder) {
  write_file(folder.file("config.json"), kPlanted);
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, 0.5f);
  std::vector<Tensor> tensors;
  std::vector<NamedTensor> named;
  const auto specs = expected_tensors(read_model_config(folder.path()));
  tensors.reserve(specs.size());
  for (const auto& spec : specs) {
    auto& tensor = tensors.emplace_back(spec.shape);
    const auto width = spec.shape[spec.shape.rank() - 1];
    for (std::int64_t i = 0; i < tensor.size(); ++i)
      tensor.data<float>()[i] = is_zero(spec.name, i / width, i % width) ? 0.0f : normal(random);
    named.push_back({"model." + spec.name, tensor.view()});
  }
  write_safetensors(folder.file("model.safetensors"), named);
}

const std::vector<std::int32_t> kText = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3};

TEST(PlantedModel, AttributionFindsTheOnlyHeadThatIsRead) {
  const TemporaryFolder folder;
  write_planted_model(folder);
  const auto model = Model::load(folder.path(), {.device = "cpu", .quiet = true});
  const auto found = attribute_scores(model, kText, {.heads = {{1, 2}, {1, 1}}, .keys = "top:3"});
  for (std::size_t pair = 0; pair < found.pairs().size(); ++pair) {
    const auto matrix = found.matrix(pair);
    const auto& labels = found.k_components(pair);
    double largest_other = 0;
    for (std::size_t i = 0; i < matrix.size(); ++i)
      if (labels[i / labels.size()] != "L0H3" || labels[i % labels.size()] != "L0H3")
        largest_other = std::max(largest_other, std::abs(matrix[i]));
    if (found.pairs()[pair].head.head == 2) {
      EXPECT_LT(largest_other, 1e-6);
      EXPECT_GT(std::abs(found.pairs()[pair].score), 1e-2);
    } else {
      EXPECT_GT(largest_other, 1e-2);  // head 1.1 reads every component
    }
  }
}

// Two features that are the whole output of head 0.3 at the chosen positions, up to an error.
TEST(PlantedModel, FeaturesSplitTheirComponent) {
  const TemporaryFolder folder;
  write_planted_model(folder);
  const auto model = Model::load(folder.path(), {.device = "cpu", .quiet = true});
  const auto file = folder.file("features.safetensors");
  const auto tokens = std::ssize(kText);
  Tensor decoder({3, kWidth});
  Tensor activations({tokens, 3});
  for (std::int64_t i = 0; i < decoder.size(); ++i)
    decoder.data<float>()[i] = static_cast<float>(i % 7) - 3;
  for (std::int64_t i = 0; i < activations.size(); ++i)
    activations.data<float>()[i] = i % 3 == 1 ? 0.0f : 0.1f;  // feature 1 never fires
  const auto write = [&](const std::string& component) {
    write_safetensors(file, std::vector<NamedTensor>{{component + ".decoder", decoder},
                                                     {component + ".activations", activations}});
  };
  write("L0H3");
  const AttributionOptions options{.heads = {{1, 1}}, .features = file};
  const auto found = attribute_scores(model, kText, options);
  EXPECT_THAT(found.k_components(0),
              testing::AllOf(testing::IsSupersetOf({"L0H3_F0", "L0H3_F2", "L0H3_error"}),
                             testing::Not(testing::Contains("L0H3_F1")),
                             testing::Not(testing::Contains("L0H3"))));
  EXPECT_LT(worst_residual(found), 2e-5);

  const auto message = [&] {
    return bad_input_message([&] { attribute_scores(model, kText, options); });
  };
  write("L9H3");
  EXPECT_THAT(message(), HasSubstr("'L9H3' is no component"));
  decoder = Tensor({3, kWidth + 1});
  std::fill_n(decoder.data<float>(), decoder.size(), 1.0f);
  write("L0H3");
  EXPECT_THAT(message(), HasSubstr("expected [features, 32]"));
}

// The head with the highest score of a column of score_heads() among layers [0, before).
AttentionHead strongest(const Table& heads, const char* column, std::int64_t before) {
  std::size_t best = 0;
  double score = -1;
  for (std::size_t row = 0; row < static_cast<std::size_t>(heads.rows()); ++row)
    if (heads.find("layer")->integers[row] < before && heads.find(column)->reals[row] > score) {
      best = row;
      score = heads.find(column)->reals[row];
    }
  return {heads.find("layer")->integers[best], heads.find("head")->integers[best]};
}

// Label of the head, among earlier heads, that explains most of the scores through the keys.
std::string leading_key_head(const Table& components) {
  std::string leading;
  double most = -1;
  for (std::size_t row = 0; row < static_cast<std::size_t>(components.rows()); ++row) {
    const auto& component = components.find("component")->texts[row];
    const double explained = components.find("explained")->reals[row];
    if (components.find("side")->texts[row] != "k" || component[0] != 'L' || explained <= most)
      continue;
    most = explained;
    leading = component;
  }
  return leading;
}

// An induction head finds the token after an earlier copy of the query's token: a previous-token
// head must have written that copy into the key. In the demo's model the strongest previous-token
// head is in the layer below the strongest induction head.
TEST(Demo, PreviousTokenHeadFeedsTheKeysOfTheInductionHead) {
  const auto folder = source_path("share/demo/checkpoints/LC2-1200");
  const auto model = Model::load(folder, {.device = "cpu", .quiet = true});
  const auto tokenizer = Tokenizer::load(folder);
  CorpusOptions corpus;
  corpus.path = source_path("share/demo/corpus.jsonl");
  corpus.max_samples = 12;
  std::vector<std::vector<std::int32_t>> texts;
  const auto documents = open_corpus(corpus);
  for (Document document; documents->next(document);)
    texts.push_back(tokenizer.encode(document.text, {.max_length = 256}).ids);
  const auto heads = score_heads(model, texts, {.all_keys = false});
  const auto induction = strongest(heads, "induction_head", model.config().n_layers);
  const auto previous = strongest(heads, "previous_token_head", induction.layer);
  EXPECT_EQ(previous.layer, induction.layer - 1);
  const auto found = composition(model, texts, {.heads = {induction}, .samples = 2400});
  EXPECT_EQ(leading_key_head(found.components),
            "L" + std::to_string(previous.layer) + "H" + std::to_string(previous.head));
}

}  // namespace
}  // namespace qkscope
