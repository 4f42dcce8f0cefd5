// The native model as an external engine, so that its captures can be compared with native ones.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/io/json.h"
#include "qkscope/experimental/engine.h"
#include "qkscope/texts.h"

namespace qkscope {

class ModelEngine : public ExternalEngine {
 public:
  explicit ModelEngine(const std::string& folder) : model_(Model::load(folder)) {
    described_.config = model_.config();
    described_.d_value = described_.config.d_head;
    described_.engine = "test";
    for (std::int64_t layer = 0; layer < described_.config.n_layers; ++layer) {
      const auto* rope = model_.config().rope(layer);
      described_.ropes.push_back(
          rope == nullptr ? LayerRope()
                          : LayerRope{Json{{"type", "default"}, {"theta", rope->theta}}.dump(),
                                      rope_frequencies(*rope, 100).inverse, rope->dim});
    }
    for (auto& layer : described_.config.layers) layer.rope = -1;
    described_.config.ropes.clear();
  }

  const EngineModel& model() const override { return described_; }
  void run(const Batch& batch, Observer& observer) override {
    ++passes;
    model_.run(batch, observer);
  }
  RunPass pass() {
    return [this](const Batch& batch, Observer& observer) { run(batch, observer); };
  }

  int passes = 0;

 private:
  Model model_;
  EngineModel described_;
};

// Tokenizes the documents of a JSON Lines file as a native run does.
inline std::vector<WriterDocument> read_writer_documents(const std::string& file,
                                                         const std::string& folder) {
  const auto tokenizer = Tokenizer::load(folder);
  CorpusOptions options;
  options.path = file;
  options.id_column = "id";
  const auto corpus = open_corpus(options);
  std::vector<WriterDocument> documents;
  Document document;
  while (corpus->next(document))
    documents.push_back({.ids = tokenizer.encode(document.text, {.max_length = 100}).ids,
                         .id = document.source_id});
  return documents;
}

}  // namespace qkscope
