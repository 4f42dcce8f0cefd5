// Small trained checkpoints predict the text they were trained on.
#include <cmath>
#include <filesystem>
#include <ostream>

#include <gtest/gtest.h>

#include "base/io/json.h"
#include "engine/forward/forward.h"
#include "paths.h"
#include "recorder.h"

namespace qkscope {
namespace {

const std::string kWeights = source_path("../shared/weights/");

// Returns the mean negative log-likelihood of each token after the first, in nats.
double mean_nll(const Tensor& logits, const std::vector<std::int32_t>& ids) {
  double total = 0.0;
  for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
    const float* row = logits.data<float>() + static_cast<std::int64_t>(i) * logits.dim(1);
    double highest = row[0];
    for (std::int64_t j = 1; j < logits.dim(1); ++j)
      highest = std::max(highest, static_cast<double>(row[j]));
    double sum = 0.0;
    for (std::int64_t j = 0; j < logits.dim(1); ++j) sum += std::exp(row[j] - highest);
    total += highest + std::log(sum) - row[ids[i + 1]];
  }
  return total / static_cast<double>(ids.size() - 1);
}

double nll_of(const LoadedCheckpoint& model, const std::vector<std::int32_t>& ids) {
  Batch batch;
  batch.add(ids);
  Recorder recorder([](const std::string& name) { return name == "logits"; });
  forward(model, batch, recorder);
  return mean_nll(recorder.seen.at("logits"), ids);
}

// A typical sentence, as ids of the tokenizer of the checkpoint.
struct Trained {
  const char* name;
  std::vector<std::int32_t> ids;
};

std::ostream& operator<<(std::ostream& out, const Trained& trained) {
  return out << trained.name;
}

class TrainedCheckpoint : public testing::TestWithParam<Trained> {};

TEST_P(TrainedCheckpoint, HasLowLossOnItsTrainingLanguage) {
  const auto& [name, ids] = GetParam();
  if (!std::filesystem::exists(kWeights + name))
    GTEST_SKIP() << "no ../shared/weights/" << name << " beside the project";
  const auto model = load_unprocessed_checkpoint(kWeights + name);
  const double nll = nll_of(model, ids);
  const double uniform = std::log(static_cast<double>(model.config.vocab_size));
  std::printf("%s: %.2f nats per token, uniform is %.2f\n", name, nll, uniform);
  EXPECT_LT(nll, uniform / 3);
}

// "Once upon a time, there was a little girl named Lily. She loved to play outside in the park."
const Trained kTrained[] = {
    {"infinitensor-story", {1, 147, 201, 282, 215, 286, 598, 1662, 887, 1584, 872, 10}},
    {"stories260K",
     {1,   403, 407, 261, 378, 432, 383, 286, 261, 376, 298, 315, 421, 395, 317, 426,
      338, 401, 396, 267, 337, 410, 408, 419, 292, 411, 322, 265, 282, 295, 433, 426}},
};

INSTANTIATE_TEST_SUITE_P(
    Stories, TrainedCheckpoint, testing::ValuesIn(kTrained), [](const auto& trained) {
      return std::string(trained.param.name).substr(0, std::string(trained.param.name).find('-'));
    });

}  // namespace
}  // namespace qkscope
