#include <algorithm>

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/text.h"
#include "base/io/json.h"
#include "capture/stats_run/stats_plan.h"
#include "engine/forward/forward.h"
#include "qkscope/tokenizer.h"

namespace qkscope {
namespace {

constexpr std::int64_t kMostRows = 64;  // tokens of the longest answer

struct TokenizedTrial {
  std::string id;
  std::vector<std::int32_t> tokens;  // text followed by answer
  std::int64_t needle_begin = 0;
  std::int64_t needle_end = 0;
  std::int64_t answer_begin = 0;

  std::int64_t answer_length() const { return std::ssize(tokens) - answer_begin; }
  std::int32_t answer_token(std::int64_t i) const { return tokens[as_index(answer_begin + i)]; }
};

class RetrievalTrialReader {
 public:
  explicit RetrievalTrialReader(const StatsRunPlan& plan)
      : plan_(plan), tokenizer_(Tokenizer::load(plan.run.tokenizer_folder)) {}

  std::vector<TokenizedTrial> read() const {
    const auto& path = plan_.config.stats.retrieval;
    std::vector<TokenizedTrial> trials;
    const auto text = read_text_file(path);
    std::int64_t line_number = 0;
    for (const auto& line : split(text, '\n')) {
      ++line_number;
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      const auto where = fmt::format("{}:{}", path, line_number);
      trials.push_back(parse_trial(parse_json(line, where), where, std::ssize(trials)));
    }
    if (trials.empty()) reject("{}: holds no trial", path);
    return trials;
  }

 private:
  TokenizedTrial parse_trial(const Json& json, const std::string& where,
                             std::int64_t number) const {
    if (!json.is_object() || !json.contains("text") || !json["text"].is_string())
      reject("{}: expected an object with text, needle and answer", where);
    TokenizedTrial trial;
    trial.id = json.contains("id")
                   ? (json["id"].is_string() ? json["id"].get<std::string>() : json["id"].dump())
                   : std::to_string(number);
    trial.tokens = tokenizer_.encode(json["text"].get<std::string>()).ids;
    trial.answer_begin = std::ssize(trial.tokens);
    find_needle(json, where, trial);
    const auto answer = parse_answer(json, where);
    if (answer.empty() || std::ssize(answer) > kMostRows)
      reject("{}: answer: expected 1 to {} tokens, found {}", where, kMostRows, answer.size());
    trial.tokens.insert(trial.tokens.end(), answer.begin(), answer.end());
    const auto longest = plan_.config.run.tokenizer.max_length;
    if (std::ssize(trial.tokens) > longest)
      reject("{}: text and answer have {} tokens; tokenizer.max_length is {}", where,
             trial.tokens.size(), longest);
    return trial;
  }

  std::vector<std::int32_t> encode_text(const std::string& text) const {
    return tokenizer_.encode(text, {.add_special_tokens = false}).ids;
  }

  std::vector<std::int32_t> parse_answer(const Json& json, const std::string& where) const {
    const auto answer = json.value("answer", Json());
    if (answer.is_string()) return encode_text(answer.get<std::string>());
    if (!answer.is_array()) reject("{}: answer: expected a text or a list of token ids", where);
    std::vector<std::int32_t> ids;
    for (const auto& id : answer) {
      if (!id.is_number_integer() || id < 0 || id >= plan_.run.model.vocab_size)
        reject("{}: answer: {} is no token id; the model has 0 to {}", where, id.dump(),
               plan_.run.model.vocab_size - 1);
      ids.push_back(id.get<std::int32_t>());
    }
    return ids;
  }

  void find_needle(const Json& json, const std::string& where, TokenizedTrial& trial) const {
    const auto begin = json.value("needle_start", Json());
    const auto end = json.value("needle_end", Json());
    if (begin.is_number_integer() && end.is_number_integer()) {
      trial.needle_begin = begin;
      trial.needle_end = end;
    } else if (json.contains("needle") && json["needle"].is_string()) {
      const auto needle = encode_text(json["needle"].get<std::string>());
      const auto found =
          std::search(trial.tokens.begin(), trial.tokens.end(), needle.begin(), needle.end());
      if (needle.empty() || found == trial.tokens.end())
        reject(
            "{}: needle: its tokens are not in the text one after another; give them as "
            "needle_start and needle_end",
            where);
      trial.needle_begin = found - trial.tokens.begin();
      trial.needle_end = trial.needle_begin + std::ssize(needle);
    } else {
      reject("{}: expected needle (a text), or needle_start and needle_end (token offsets)", where);
    }
    if (trial.needle_begin < 0 || trial.needle_begin >= trial.needle_end ||
        trial.needle_end > trial.answer_begin)
      reject("{}: the needle is tokens {} to {}; the text has {}", where, trial.needle_begin,
             trial.needle_end, trial.answer_begin);
  }

  const StatsRunPlan& plan_;
  Tokenizer tokenizer_;
};

// Sums retrieval scores and counts correct greedy tokens over the rows that predict the answer.
class RetrievalObserver : public Observer {
 public:
  RetrievalObserver(const TokenizedTrial& trial, const Statistics& statistics)
      : trial_(trial), layers_(statistics.layers), heads_(statistics.heads) {
    for (std::int64_t step = 0; step < trial.answer_length(); ++step)
      rows_.push_back(trial.answer_begin + step - 1);
    score_.resize(layers_.size() * as_index(heads_));
  }

  bool wants(HookPoint point) const override {
    return point.stage == Stage::attn_scores || point.stage == Stage::logits;
  }
  Selection selection(HookPoint point) const override {
    if (point.stage != Stage::logits) return {};
    return {.rows = rows_, .heads = {}};
  }
  std::span<const std::int64_t> score_rows() const override { return rows_; }

  // activation: attention scores (n_heads, rows, keys), or logits (rows, vocab_size)
  void observe(HookPoint point, ConstTensorView activation) override {
    const auto width = activation.dim(point.stage == Stage::logits ? 1 : 2);
    const float* row = activation.data<float>();
    if (point.stage == Stage::logits) {
      for (std::int64_t step = 0; step < trial_.answer_length(); ++step, row += width)
        matches_ += std::max_element(row, row + width) - row == trial_.answer_token(step) ? 1 : 0;
      return;
    }
    const auto place = std::ranges::lower_bound(layers_, point.layer) - layers_.begin();
    for (std::int64_t head = 0; head < heads_; ++head)
      for (std::int64_t step = 0; step < trial_.answer_length(); ++step, row += width)
        score_[as_index(place * heads_ + head)] += score_retrieval_step(
            {row, as_index(width)},
            {trial_.tokens, trial_.needle_begin, trial_.needle_end, trial_.answer_token(step)});
  }

  std::vector<double> head_scores() const { return score_; }
  double greedy_match_rate() const { return to_double(matches_) / to_double(std::ssize(rows_)); }

 private:
  const TokenizedTrial& trial_;
  const std::vector<std::int64_t>& layers_;
  std::int64_t heads_;
  std::vector<std::int64_t> rows_;
  std::vector<double> score_;  // (layers, heads)
  std::int64_t matches_ = 0;
};

}  // namespace

double score_retrieval_step(std::span<const float> scores, const NeedleDecodingStep& step) {
  const auto best = std::ranges::max_element(scores) - scores.begin();
  if (best < step.needle_begin || best >= step.needle_end) return 0.0;
  if (step.tokens[as_index(best)] != step.answer) return 0.0;
  return 1.0 / to_double(step.needle_end - step.needle_begin);
}

std::int64_t count_retrieval_trials(const StatsRunPlan& plan) {
  return plan.config.stats.retrieval.empty() ? 0 : std::ssize(RetrievalTrialReader(plan).read());
}

std::vector<RetrievalTrial> run_retrieval_trials(const StatsRunPlan& plan, Backend& backend) {
  std::vector<RetrievalTrial> results;
  if (plan.config.stats.retrieval.empty()) return results;
  for (const auto& trial : RetrievalTrialReader(plan).read()) {
    Batch batch;
    batch.add(trial.tokens);
    RetrievalObserver observer(trial, plan.statistics);
    forward(backend, batch, observer);
    results.push_back({.id = trial.id,
                       .tokens = std::ssize(trial.tokens),
                       .needle_begin = trial.needle_begin,
                       .needle_end = trial.needle_end,
                       .greedy_match = observer.greedy_match_rate(),
                       .counts = observer.greedy_match_rate() >= plan.config.stats.min_match,
                       .score = observer.head_scores()});
  }
  return results;
}

}  // namespace qkscope
