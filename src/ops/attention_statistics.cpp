#include "ops/attention_statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "core/error.h"
#include "core/index.h"
#include "core/thread_pool.h"
#include "ops/gemm.h"
#include "ops/replaced_keys.h"

namespace qkscope {
namespace {

constexpr std::int64_t kQueryRows = 64;
constexpr std::int64_t kKeysAtOnce = 256;
constexpr std::int64_t kSinks = 4;
constexpr std::int64_t kSinkRows = 64;  // of the alpha columns
constexpr double kLog2E = 1.4426950408889634;
constexpr double kKeyUnit = 1099511627776.0;  // 2^40: key sums are integers of its inverse
constexpr double kLeastKept = 1e-30;          // so that -ln of a kept mass of 0 is a number

std::int64_t bit_width(std::int64_t distance) {
  return std::bit_width(static_cast<std::uint64_t>(distance));
}

// One query head of one document.
struct HeadInput {
  const AttentionInput* input;
  const rows::RunningSoftmax* row_sums;  // of position 0, n_heads apart
  const std::int32_t* ids;               // of position 0
  Sequence sequence;
  std::int64_t head;

  std::int64_t heads() const { return input->q.dim(1); }
  std::int64_t key_head() const { return head / (heads() / input->k.dim(1)); }
  std::int64_t d() const { return input->q.dim(2); }
  std::int64_t query_stride() const { return heads() * d(); }
  std::int64_t key_stride() const { return input->k.dim(1) * d(); }
  const float* query(std::int64_t position) const {
    return input->q.data<float>() + (sequence.begin + position) * query_stride() + head * d();
  }
  const float* key(std::int64_t position) const {
    return input->k.data<float>() + (sequence.begin + position) * key_stride() + key_head() * d();
  }
  std::int64_t first_key(std::int64_t position) const {
    return first_visible_key(position, input->window);
  }
  double max_logit(std::int64_t position) const { return row_sums[position * heads()].highest; }
  double lse(std::int64_t position) const {
    const auto& sums = row_sums[position * heads()];
    return static_cast<double>(sums.highest) + std::log(static_cast<double>(sums.sum));
  }
};

// Scores of a block of consecutive queries against consecutive keys, with the bits of attention().
class ScoreTile {
 public:
  void take_queries(const HeadInput& in, std::int64_t begin, std::int64_t count) {
    d_ = in.d();
    queries_ = count;
    softcap_ = in.input->softcap;
    const auto tile = gemm::tile_shape();
    packed_queries_.resize(as_index(gemm::round_up(count, tile.rows) * d_));
    gemm::pack(gemm::LeftRows{in.query(begin), in.query_stride(), count, d_},
               packed_queries_.data());
    rows::scale(packed_queries_.data(), static_cast<std::int64_t>(packed_queries_.size()),
                in.input->scale);
  }

  // keys: row j at keys + j * stride.
  void multiply(const float* keys, std::int64_t stride, std::int64_t count) {
    keys_ = count;
    const auto tile = gemm::tile_shape();
    packed_keys_.resize(as_index(gemm::round_up(count, tile.columns) * d_));
    scores_.resize(as_index(queries_ * count));
    gemm::pack(gemm::RightColumns{keys, stride, count, d_}, packed_keys_.data());
    gemm::multiply({packed_queries_.data(), packed_keys_.data(), queries_, count, d_}, false,
                   scores_.data(), count);
    if (softcap_ > 0.0f) rows::soft_cap(scores_.data(), std::ssize(scores_), softcap_);
  }

  std::span<const float> row(std::int64_t query) const {
    return {scores_.data() + query * keys_, as_index(keys_)};
  }

 private:
  std::int64_t d_ = 0;
  std::int64_t queries_ = 0;
  std::int64_t keys_ = 0;
  float softcap_ = 0.0f;
  std::vector<float> packed_queries_;
  std::vector<float> packed_keys_;
  std::vector<float> scores_;  // (queries, keys)
};

// p = exp(s - lse)
void probabilities(std::span<const float> scores, double lse, std::vector<float>& p) {
  p.resize(scores.size());
  for (std::size_t i = 0; i < p.size(); ++i)
    p[i] = static_cast<float>(static_cast<double>(scores[i]) - lse);
  rows::exponential(p.data(), std::ssize(p));
}

// Mass on keys that hold the query's own token (dup), or follow one that does (ind).
struct TokenMass {
  double dup = 0;
  double dup_first = 0;
  double ind = 0;
  double ind_self = 0;
};

// Positions of each token that occurs more than once, ascending.
std::vector<std::vector<std::int64_t>> repeated_tokens(const HeadInput& in) {
  std::map<std::int32_t, std::vector<std::int64_t>> places;
  for (std::int64_t i = 0; i < in.sequence.length; ++i) places[in.ids[i]].push_back(i);
  std::vector<std::vector<std::int64_t>> repeated;
  for (auto& [token, positions] : places)
    if (positions.size() > 1) repeated.push_back(std::move(positions));
  return repeated;
}

// Keys at positions + offset, side by side.
void gather_keys(const HeadInput& in, std::span<const std::int64_t> positions, std::int64_t offset,
                 std::vector<float>& keys) {
  keys.clear();
  for (const auto position : positions)
    keys.insert(keys.end(), in.key(position + offset), in.key(position + offset) + in.d());
}

// (length): sums over pairs of equal tokens. Each token is a block; a query sees the keys of the
// earlier positions of its block (dup) and those one later (ind).
std::vector<TokenMass> token_masses(const HeadInput& in,
                                    std::span<const std::vector<std::int64_t>> repeated) {
  std::vector<TokenMass> masses(as_index(in.sequence.length));
  std::vector<float> keys;
  std::vector<float> scores;
  std::vector<float> p;
  const auto attend = [&](std::int64_t query, std::int64_t before) -> std::span<const float> {
    scores.resize(as_index(before));
    rows::dots({in.query(query), keys.data(), in.d(), before, in.d()}, in.input->scale,
               scores.data());
    if (in.input->softcap > 0.0f) rows::soft_cap(scores.data(), before, in.input->softcap);
    probabilities(scores, in.lse(query), p);
    return p;
  };
  for (const auto& block : repeated) {
    const auto positions = std::span(block).first(block.size() - 1);  // those that come before one
    gather_keys(in, positions, 0, keys);
    for (std::size_t r = 1; r < block.size(); ++r) {
      const auto query = block[r];
      const auto weights = attend(query, static_cast<std::int64_t>(r));
      auto& mass = masses[as_index(query)];
      for (std::size_t k = 0; k < r; ++k) {
        if (block[k] < in.first_key(query)) continue;
        mass.dup += weights[k];
        if (block[k] == 0) mass.dup_first += weights[k];
      }
    }
    gather_keys(in, positions, 1, keys);
    for (std::size_t r = 1; r < block.size(); ++r) {
      const auto query = block[r];
      const auto weights = attend(query, static_cast<std::int64_t>(r));
      auto& mass = masses[as_index(query)];
      for (std::size_t k = 0; k < r; ++k) {
        if (block[k] + 1 < in.first_key(query)) continue;
        mass.ind += weights[k];
        if (block[k] + 1 == query) mass.ind_self += weights[k];
      }
    }
  }
  return masses;
}

// How many keys hold a share of the mass and how much the largest keys hold, from counts and mass
// in bins of half octaves: the ends of what is possible.
class MassBins {
 public:
  void clear() {
    std::fill(std::begin(count_), std::end(count_), 0);
    std::fill(std::begin(mass_), std::end(mass_), 0.0);
  }
  // x = ln p
  void add(double x, double p) {
    const auto bin = static_cast<std::int64_t>(-2.0 * kLog2E * x);
    const auto b = as_index(std::clamp<std::int64_t>(bin, 0, kMassBins - 1));
    ++count_[b];
    mass_[b] += p;
  }

  void keys_of_share(double share, double* low, double* high) const {
    double held = 0;
    std::int64_t keys = 0;
    for (std::int64_t b = 0; b < kMassBins; ++b) {
      if (count_[as_index(b)] > 0 && held + mass_[as_index(b)] >= share) {
        const double missing = share - held;
        const auto most = static_cast<double>(count_[as_index(b)]);
        // At least this many if all were as large as the bin allows; and never more than if those
        // taken first, the largest, were only average.
        const double average = mass_[as_index(b)] / most;
        *low = static_cast<double>(keys) + std::max(1.0, std::ceil(missing / upper(b)));
        *high =
            static_cast<double>(keys) + std::min(most, std::max(1.0, std::ceil(missing / average)));
        *low = std::min(*low, *high);
        return;
      }
      held += mass_[as_index(b)];
      keys += count_[as_index(b)];
    }
    *low = *high = static_cast<double>(keys);
  }

  void mass_of_top(std::int64_t top, double* low, double* high) const {
    double held = 0;
    for (std::int64_t b = 0; b < kMassBins; ++b) {
      const auto count = count_[as_index(b)];
      if (count >= top) {
        const auto taken = static_cast<double>(top);
        const double part =
            count == 0 ? 0 : mass_[as_index(b)] * taken / static_cast<double>(count);
        *low = held + part;
        *high = held + std::max(part, std::min(mass_[as_index(b)], taken * upper(b)));
        return;
      }
      held += mass_[as_index(b)];
      top -= count;
    }
    *low = *high = held;
  }

 private:
  static double upper(std::int64_t bin) { return std::exp2(-0.5 * static_cast<double>(bin)); }

  std::int64_t count_[kMassBins] = {};
  double mass_[kMassBins] = {};
};

// The sums of one replacement of keys at a row.
struct Divergence {
  double difference = 0;  // sum p (s - s')
  double highest = -std::numeric_limits<double>::infinity();
  double sum = 0;  // of exp(s' - highest)

  void add(double p, double score, double replaced) {
    difference += p * (score - replaced);
    if (replaced > highest) {
      sum = sum * std::exp(highest - replaced) + 1.0;
      highest = replaced;
    } else {
      sum += std::exp(replaced - highest);
    }
  }
  double value(double lse) const { return difference + highest + std::log(sum) - lse; }
};

class HeadStatistics {
 public:
  HeadStatistics(const HeadInput& in, const AttentionRequest& request, LayerAttention& out,
                 std::int64_t document)
      : in_(in),
        request_(request),
        layout_(request.layout),
        out_(out),
        cell_((document * out.heads + in.head) * out.buckets) {}

  void run(std::span<const std::vector<std::int64_t>> repeated,
           std::span<const ReplacedKeys> replaced, std::span<const std::vector<char>> kept) {
    replaced_ = replaced;
    kept_ = kept;
    masses_ = token_masses(in_, repeated);
    for (std::int64_t begin = 0; begin < in_.sequence.length; begin += kQueryRows)
      add_block(begin, std::min(in_.sequence.length, begin + kQueryRows));
  }

 private:
  void add_block(std::int64_t begin, std::int64_t end) {
    const auto count = end - begin;
    block_.assign(as_index(count * layout_.columns()), 0.0);
    tile_.take_queries(in_, begin, count);
    first_keys(begin, end);
    last_keys(begin, end);
    for (auto i = begin; i < end; ++i) finish_near(i, values(i - begin));
    if (layout_.all_keys) all_keys(begin, end);
    for (auto i = begin; i < end; ++i) add_row(i, values(i - begin));
  }

  double* values(std::int64_t query) { return block_.data() + query * layout_.columns(); }
  static std::int64_t at(NearColumn column) { return ColumnLayout::at(column); }

  void first_keys(std::int64_t begin, std::int64_t end) {
    const auto keys = std::min(end, std::max(kSinks, layout_.stream_first));
    tile_.multiply(in_.key(0), in_.key_stride(), keys);
    for (auto i = begin; i < end; ++i) {
      double* const v = values(i - begin);
      probabilities(tile_.row(i - begin), in_.lse(i), p_);
      for (auto j = in_.first_key(i); j < std::min(keys, i + 1); ++j) {
        const double p = p_[as_index(j)];
        if (j < layout_.stream_first && i - j >= layout_.stream_last)
          v[at(NearColumn::stream)] += p;
        if (j < kSinks) add_sink(i, j, p, v);
      }
    }
  }

  static void add_sink(std::int64_t i, std::int64_t j, double p, double* v) {
    v[at(NearColumn::sink_0) + j] = p;
    v[at(NearColumn::sink_4)] += p;
    if (i < kSinkRows) v[at(NearColumn::alpha_0) + j] = p;
    if (i == 1 && j == 0) v[at(NearColumn::prev_first)] = p;
  }

  void last_keys(std::int64_t begin, std::int64_t end) {
    const auto reach = std::max(layout_.window, layout_.stream_last);
    const auto first = std::max<std::int64_t>(0, begin - reach + 1);
    tile_.multiply(in_.key(first), in_.key_stride(), end - first);
    for (auto i = begin; i < end; ++i) {
      double* const v = values(i - begin);
      probabilities(tile_.row(i - begin), in_.lse(i), p_);
      for (auto j = std::max({first, in_.first_key(i), i - reach + 1}); j <= i; ++j) {
        const double p = p_[as_index(j - first)];
        const auto distance = i - j;
        if (distance < layout_.window) v[layout_.near(bit_width(distance))] += p;
        if (distance < layout_.stream_last) v[at(NearColumn::stream)] += p;
        if (distance == 0) v[at(NearColumn::self)] = p;
        if (distance == 1) v[at(NearColumn::prev)] = p;
      }
    }
  }

  void finish_near(std::int64_t i, double* v) const {
    const auto& mass = masses_[as_index(i)];
    v[at(NearColumn::dup)] = mass.dup;
    v[at(NearColumn::dup_first)] = mass.dup_first;
    v[at(NearColumn::ind)] = mass.ind;
    v[at(NearColumn::ind_self)] = mass.ind_self;
    v[at(NearColumn::max_logit)] = in_.max_logit(i);
    v[at(NearColumn::lse)] = in_.lse(i);
    v[at(NearColumn::top1)] = std::exp(in_.max_logit(i) - in_.lse(i));
  }

  void all_keys(std::int64_t begin, std::int64_t end) {
    const auto count = as_index(end - begin);
    bins_.resize(count);
    for (auto& bins : bins_) bins.clear();
    divergences_.assign(count * replaced_.size(), {});
    const auto first = in_.first_key(begin) / kKeysAtOnce * kKeysAtOnce;
    for (auto key = first; key < end; key += kKeysAtOnce)
      add_keys(begin, end, key, std::min(end, key + kKeysAtOnce));
    for (auto i = begin; i < end; ++i) finish_all(i, i - begin);
  }

  void add_keys(std::int64_t begin, std::int64_t end, std::int64_t first, std::int64_t last) {
    tile_.multiply(in_.key(first), in_.key_stride(), last - first);
    replaced_scores_.resize(replaced_.size());
    for (std::size_t r = 0; r < replaced_.size(); ++r) {
      replaced_tile_.take_queries(in_, begin, end - begin);
      replaced_tile_.multiply(replaced_[r].keys.data() + first * in_.d(), in_.d(), last - first);
      replaced_scores_[r].clear();
      for (std::int64_t i = 0; i < end - begin; ++i)
        replaced_scores_[r].insert(replaced_scores_[r].end(), replaced_tile_.row(i).begin(),
                                   replaced_tile_.row(i).end());
    }
    for (auto i = begin; i < end; ++i) {
      const auto from = std::max(first, in_.first_key(i));
      const auto to = std::min(last, i + 1);
      if (from < to) add_row_keys(i, i - begin, first, {from, to}, last - first);
    }
  }

  struct KeyRange {
    std::int64_t begin;
    std::int64_t end;
  };

  void add_row_keys(std::int64_t i, std::int64_t query, std::int64_t first, KeyRange keys,
                    std::int64_t width) {
    double* const v = values(query);
    const auto scores = tile_.row(query);
    const double lse = in_.lse(i);
    probabilities(scores, lse, p_);
    std::int64_t* const key_sums =
        out_.key_sums.data() + in_.sequence.begin * out_.heads + in_.head;
    for (auto j = keys.begin; j < keys.end; ++j) {
      const auto at_key = as_index(j - first);
      const double p = p_[at_key];
      const double x = static_cast<double>(scores[at_key]) - lse;
      const auto distance = i - j;
      v[layout_.entropy()] -= p * x;
      v[layout_.distance_mean()] += p * static_cast<double>(distance);
      v[layout_.dist(std::min(bit_width(distance), kDistances - 1))] += p;
      bins_[as_index(query)].add(x, p);
      key_sums[j * out_.heads] += std::llround(p * kKeyUnit);
      for (std::size_t r = 0; r < replaced_.size(); ++r)
        divergences_[as_index(query) * replaced_.size() + r].add(
            p, scores[at_key], replaced_scores_[r][as_index(query * width) + at_key]);
      for (std::size_t s = 0; s < request_.kept.size(); ++s)
        if (keeps(s, i, j)) v[layout_.kept(static_cast<std::int64_t>(s))] += p;
    }
  }

  bool keeps(std::size_t set, std::int64_t i, std::int64_t j) const {
    const auto& rule = request_.kept[set];
    if (rule.rule == KeptKeys::Rule::ends) return j < rule.first || i - j < rule.last;
    return kept_[set][as_index(j)] != 0;
  }

  void finish_all(std::int64_t i, std::int64_t query) {
    double* const v = values(query);
    const double entropy = v[layout_.entropy()];
    v[layout_.perplexity()] = std::exp(entropy);
    v[layout_.entropy_relative()] = i == 0 ? 0.0 : entropy / std::log(static_cast<double>(i + 1));
    const auto& bins = bins_[as_index(query)];
    for (std::int64_t k = 0; k < kKeyShares; ++k)
      bins.keys_of_share(kKeyShare[k], &v[layout_.keys_low(k)], &v[layout_.keys_high(k)]);
    for (std::int64_t k = 0; k < kTopKeys; ++k)
      bins.mass_of_top(kTopKey[k], &v[layout_.top_low(k)], &v[layout_.top_high(k)]);
    for (std::size_t r = 0; r < replaced_.size(); ++r)
      v[layout_.kl(static_cast<std::int64_t>(r))] =
          divergences_[as_index(query) * replaced_.size() + r].value(in_.lse(i));
    for (std::int64_t s = 0; s < std::ssize(request_.kept); ++s)
      v[layout_.kl_evicted(s)] = -std::log(std::max(kLeastKept, v[layout_.kept(s)]));
  }

  void add_row(std::int64_t i, const double* v) {
    const auto bucket = std::min(i / request_.bucket_size, request_.buckets - 1);
    const auto columns = layout_.columns();
    double* const sum = out_.sum.data() + (cell_ + bucket) * columns;
    double* const square = out_.square.data() + (cell_ + bucket) * columns;
    for (std::int64_t c = 0; c < columns; ++c) {
      sum[c] += v[c];
      square[c] += v[c] * v[c];
    }
    auto& largest = out_.max_logit[as_index(cell_ + bucket)];
    largest = std::max(largest, static_cast<float>(in_.max_logit(i)));
  }

  const HeadInput& in_;
  const AttentionRequest& request_;
  const ColumnLayout& layout_;
  LayerAttention& out_;
  std::int64_t cell_;          // of the document's first bucket
  std::vector<double> block_;  // (queries of the block, columns)
  std::vector<TokenMass> masses_;
  ScoreTile tile_;
  ScoreTile replaced_tile_;
  std::vector<float> p_;
  std::vector<MassBins> bins_;
  std::span<const ReplacedKeys> replaced_;
  std::span<const std::vector<char>> kept_;
  std::vector<std::vector<float>> replaced_scores_;
  std::vector<Divergence> divergences_;  // (queries, replacements)
};

HeadInput head_input(const AttendedRows& attended, std::size_t document, std::int64_t head) {
  const auto& sequence = attended.input.sequences[document];
  return {.input = &attended.input,
          .row_sums = attended.row_sums.data() + sequence.begin * attended.input.q.dim(1) + head,
          .ids = attended.ids.data() + sequence.begin,
          .sequence = sequence,
          .head = head};
}

// What the heads that read one key head share.
struct KeyHead {
  std::vector<ReplacedKeys> replaced;   // one per replacement
  std::vector<std::vector<char>> kept;  // one per set of kept keys; empty where the rule needs none
};

KeyHead prepare_keys(const HeadInput& in, const AttentionRequest& request) {
  KeyHead keys;
  const KeyRows rows{in.key(0), in.key_stride(), in.sequence.length, in.d()};
  for (const auto& replacement : request.replacements)
    keys.replaced.push_back(replace_keys(rows, replacement));
  for (const auto& set : request.kept)
    keys.kept.push_back(set.rule == KeptKeys::Rule::short_keys ? shortest_keys(rows, set.share)
                                                               : std::vector<char>());
  return keys;
}

}  // namespace

LayerAttention attention_statistics(const AttendedRows& attended, const AttentionRequest& request) {
  const auto& input = attended.input;
  QKSCOPE_ASSERT(input.queries.empty());
  const auto heads = input.q.dim(1);
  const auto documents = std::ssize(input.sequences);
  auto out = empty_attention(documents, heads, request.buckets, request.layout.columns());
  if (request.layout.all_keys) out.key_sums.resize(as_index(input.q.dim(0) * heads));
  const auto key_heads = input.k.dim(1);
  const auto group = heads / key_heads;
  parallel_for(documents * key_heads, [&](std::int64_t task) {
    const auto document = task / key_heads;
    const auto head = task % key_heads * group;
    const auto shared = head_input(attended, as_index(document), head);
    const auto repeated = repeated_tokens(shared);
    const auto keys = prepare_keys(shared, request);
    for (auto h = head; h < head + group; ++h) {
      const auto in = head_input(attended, as_index(document), h);
      HeadStatistics(in, request, out, document).run(repeated, keys.replaced, keys.kept);
    }
  });
  return out;
}

}  // namespace qkscope
