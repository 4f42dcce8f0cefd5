// Computes statistics of the keys near each query, and the softmax row sums (log-sum-exp, maximum)
// if the attention kernel does not return them.
#include "engine/device/cuda/statistics/near_keys.cuh"

namespace qkscope::cuda {
namespace {

struct NoOptions {};

// Computes the log-sum-exp and largest score of each query row with an online softmax.
template <typename T, typename Shape>
class RowStatsPass {
 public:
  static constexpr int kBlocks = sizeof(T) == 2 ? 3 : 1;
  using Options = NoOptions;
  struct SharedStorage {};

  __device__ RowStatsPass(const ScoreArguments& a, const Options&, const ScoreThreadBlock& block,
                          SharedStorage&)
      : a_(a), block_(block), scale_(a.scale * kLog2E) {}

  __device__ int first_key() const {
    return max(0, block_.tile.first - block_.window + 1) / Shape::kKeys * Shape::kKeys;
  }
  __device__ int first_key_of_next_tile(int key) const { return key + Shape::kKeys; }

  __device__ void add_tile(ScoreFragments<Shape>& scores, int key) {
    for_each_block_row<Shape>(block_, [&](int band, int half, int position) {
      float largest = softmax_.maximum[band][half];
      for_each_lane_column<Shape::kKeys>([&](int n, int i) {
        auto& score = scores[band][n][2 * half + i];
        const int distance = position - key - fragment_key_column(n, i);
        if (distance < 0 || distance >= block_.window) score = -INFINITY;
        largest = fmaxf(largest, score);
      });
      largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 2));
      const float shift = largest == -INFINITY ? 0.0f : largest * scale_;
      float sum = 0;
      for_each_lane_column<Shape::kKeys>([&](int n, int i) {
        sum += exp2_fast(fmaf(scores[band][n][2 * half + i], scale_, -shift));
      });
      softmax_.sum[band][half] =
          fmaf(softmax_.sum[band][half],
               exp2_fast(fmaf(softmax_.maximum[band][half], scale_, -shift)), sum);
      softmax_.maximum[band][half] = largest;
    });
  }

  __device__ void begin_tile() {}
  __device__ void skip_tile(int) {}

  __device__ void store_statistics() {
    for_each_block_row<Shape>(block_, [&](int band, int half, int position) {
      const float sum = quad_sum(softmax_.sum[band][half]);
      if (threadIdx.x % 4 != 0 || position >= block_.tile.length) return;
      const auto at = block_.batch_row(position) * a_.n_heads + block_.head;
      a_.row_stats.lse[at] = fmaf(softmax_.maximum[band][half], scale_, log2f(sum));
      a_.row_stats.largest[at] = softmax_.maximum[band][half];
    });
  }

 private:
  const ScoreArguments& a_;
  const ScoreThreadBlock& block_;
  float scale_;
  RunningSoftmax<Shape::kBands> softmax_;
};

}  // namespace

std::int64_t score_tile_rows(DType dtype, std::int64_t d_head) {
  if (dtype == DType::f32) return ScoreShape<float, 64>::kRows;
  return d_head <= 128 ? ScoreShape<__half, 128>::kRows : ScoreShape<__half, 256>::kRows;
}

void compute_near_key_statistics(const ScoreArguments& a, cudaStream_t stream) {
  const auto& layout = a.layout;
  const NearKeyOptions options{
      .bands = static_cast<int>(layout.near_distance_band_count()),
      .stream_first = static_cast<int>(layout.stream_first),
      .stream_last = static_cast<int>(layout.stream_last),
      .reach = static_cast<int>(std::max(layout.window, layout.stream_last))};
  if (a.tile_count == 0 || try_compute_near_key_statistics_on_hopper(a, options, stream)) return;
  dispatch_score_pass<ScoreShape, NearKeyPass>(a, options, stream);
}

void compute_row_stats(const ScoreArguments& a, cudaStream_t stream) {
  dispatch_score_pass<ScoreShape, RowStatsPass>(a, NoOptions{}, stream);
}

}  // namespace qkscope::cuda
