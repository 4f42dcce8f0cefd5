#include "analysis/attribution/pair_choice.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/text.h"

namespace qkscope {
namespace {

constexpr std::string_view kTop = "top:";

// Reads the attention of the queries at the layers of the heads.
class AttentionReader : public Observer {
 public:
  AttentionReader(const std::vector<AttentionHead>& heads, const std::vector<std::int64_t>& queries,
                  const ChooseKeys& choose)
      : heads_(heads), queries_(queries), choose_(choose), of_head_(heads.size()) {}

  bool wants(HookPoint point) const override {
    return point.stage == Stage::pattern &&
           std::ranges::any_of(
               heads_, [&](const AttentionHead& head) { return head.layer == point.layer; });
  }
  std::span<const std::int64_t> score_rows() const override { return queries_; }

  // pattern: (n_heads, queries, keys)
  void see(HookPoint point, ConstTensorView pattern) override {
    for (std::size_t h = 0; h < heads_.size(); ++h) {
      if (heads_[h].layer != point.layer) continue;
      for (std::size_t i = 0; i < queries_.size(); ++i) {
        const auto query = queries_[i];
        const float* row =
            pattern.data<float>() +
            (heads_[h].head * pattern.dim(1) + static_cast<std::int64_t>(i)) * pattern.dim(2);
        for (const auto key : choose_(query, {row, as_index(query) + 1}))
          of_head_[h].push_back({h, query, key, static_cast<double>(row[key])});
      }
    }
  }

  std::vector<ChosenPair> pairs() const {
    std::vector<ChosenPair> all;
    for (const auto& pairs : of_head_) all.insert(all.end(), pairs.begin(), pairs.end());
    return all;
  }

 private:
  const std::vector<AttentionHead>& heads_;
  const std::vector<std::int64_t>& queries_;
  const ChooseKeys& choose_;
  std::vector<std::vector<ChosenPair>> of_head_;
};

std::vector<std::int64_t> largest(std::span<const float> attention, std::int64_t count) {
  std::vector<std::int64_t> keys(attention.size());
  std::iota(keys.begin(), keys.end(), 0);
  const auto kept = std::min<std::int64_t>(count, std::ssize(keys));
  std::partial_sort(keys.begin(), keys.begin() + kept, keys.end(),
                    [&](std::int64_t a, std::int64_t b) {
                      const float x = attention[as_index(a)];
                      const float y = attention[as_index(b)];
                      return x != y ? x > y : a < b;
                    });
  keys.resize(as_index(kept));
  // Keys outside the window of the layer have no attention.
  while (keys.size() > 1 && attention[as_index(keys.back())] == 0) keys.pop_back();
  return keys;
}

}  // namespace

ChooseKeys parse_key_choice(const std::string& keys, std::int64_t length) {
  if (keys == "all")
    return [](std::int64_t query, std::span<const float>) {
      std::vector<std::int64_t> every(as_index(query) + 1);
      std::iota(every.begin(), every.end(), 0);
      return every;
    };
  if (keys.starts_with(kTop)) {
    const auto count = parse_integer(keys.substr(kTop.size()), "keys");
    if (count < 1) bad_input("keys: found '{}', expected top:N with N of 1 or more", keys);
    return [count](std::int64_t, std::span<const float> attention) {
      return largest(attention, count);
    };
  }
  std::vector<std::int64_t> listed;
  for (const auto& part : split(keys, ',')) listed.push_back(parse_integer(part, "keys"));
  const auto positions = resolve_positions(listed, length, "keys");
  return [positions](std::int64_t query, std::span<const float>) {
    if (positions.back() > query)
      bad_input("keys: key {} comes after query {}; a query attends to itself and earlier keys",
                positions.back(), query);
    return positions;
  };
}

std::vector<ChosenPair> choose_pairs(const Model& model, const std::vector<std::int32_t>& tokens,
                                     const std::vector<AttentionHead>& heads,
                                     const std::vector<std::int64_t>& queries,
                                     const ChooseKeys& choose) {
  Batch batch;
  batch.add(tokens);
  AttentionReader reader(heads, queries, choose);
  const HookPoint one_layer{Stage::pattern, heads.front().layer};
  check_score_size(model.config(), std::span(&one_layer, 1), std::ssize(queries), batch.rows(),
                   "fewer queries");
  model.run(batch, reader);
  return reader.pairs();
}

void check_heads(const std::vector<AttentionHead>& heads, const ModelConfig& model) {
  if (heads.empty()) bad_input("heads: found none, expected at least one, such as 3.1");
  for (const auto& [layer, head] : heads) {
    if (layer < 0 || layer >= model.n_layers || head < 0 || head >= model.n_heads)
      bad_input("heads: there is no head {}.{}; the model has layers 0 to {} with heads 0 to {}",
                layer, head, model.n_layers - 1, model.n_heads - 1);
    if (model.layers[as_index(layer)].cross_attention)
      bad_input("heads: layer {} attends to images and does not run on text", layer);
  }
}

std::vector<std::int64_t> resolve_positions(const std::vector<std::int64_t>& positions,
                                            std::int64_t length, const char* what) {
  std::set<std::int64_t> resolved;
  for (const auto position : positions) {
    if (position < -length || position >= length)
      bad_input("{}: {} is outside the text, which has positions 0 to {}", what, position,
                length - 1);
    resolved.insert(position < 0 ? position + length : position);
  }
  if (resolved.empty()) bad_input("{}: found none, expected at least one position", what);
  return {resolved.begin(), resolved.end()};
}

std::vector<AttentionHead> parse_heads(const std::string& text, const ModelConfig& model) {
  return translate_exceptions([&] {
    std::vector<AttentionHead> heads;
    for (const auto& part : split(text, ',')) {
      const auto dot = part.find('.');
      if (dot == std::string::npos)
        bad_input("heads: found '{}', expected LAYER.HEAD, such as 18.6 or 18.*", part);
      const auto layer = parse_integer(part.substr(0, dot), "heads");
      const auto head = part.substr(dot + 1);
      if (head != "*") {
        heads.push_back({layer, parse_integer(head, "heads")});
        continue;
      }
      for (std::int64_t h = 0; h < model.n_heads; ++h) heads.push_back({layer, h});
    }
    check_heads(heads, model);
    return heads;
  });
}

}  // namespace qkscope
