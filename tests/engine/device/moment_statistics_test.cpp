#include "engine/device/cuda/statistics/moment_statistics.h"

#include <cmath>
#include <random>
#include <stdexcept>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "device_buffer.h"
#include "engine/ops/attention.h"

namespace qkscope {
namespace {

Batch batch_of(const std::vector<std::int64_t>& lengths) {
  Batch batch;
  for (const auto length : lengths)
    batch.add(std::vector<std::int32_t>(static_cast<std::size_t>(length)));
  return batch;
}

// Channels of planted mean over sigma 0, 1, 8, 10, 30 and 100, one constant, and one with a single
// outlier of 1,000 sigma; sigma differs from channel to channel, and some drift with position.
struct PlantedRows {
  PlantedRows(const Batch& batch, std::int64_t heads_, std::int64_t dim_, DType dtype_)
      : heads(heads_), dim(dim_), dtype(dtype_), stride(heads_ * dim_ + 8) {
    std::mt19937 generator(11);
    std::normal_distribution<float> normal;
    std::vector<float> drawn(static_cast<std::size_t>(batch.rows() * stride), 1e9f);
    constexpr float kMeans[] = {0, 1, 8, 10, 30, 100, 0, 0};
    for (const auto& sequence : batch.sequences)
      for (std::int64_t t = 0; t < sequence.length; ++t)
        for (std::int64_t i = 0; i < heads * dim; ++i) {
          const auto kind = i % 8;
          const float sigma = std::exp2(static_cast<float>(i % 5) - 2.0f);
          const float drift = i % 3 == 0 ? 0.001f * static_cast<float>(t % 2000) : 0.0f;
          float x = sigma * (kMeans[kind] + normal(generator) + drift);
          if (kind == 6) x = 1.75f * sigma;
          drawn[static_cast<std::size_t>((sequence.begin + t) * stride + i)] = x;
        }
    const auto middle = batch.rows() / 2;
    for (std::int64_t i = 7; i < heads * dim; i += 8)
      drawn[static_cast<std::size_t>(middle * stride + i)] = 1000.0f;
    values = decoded(encoded(drawn, dtype), dtype);
    device = std::make_unique<DeviceBuffer>(encoded(drawn, dtype));
  }

  cuda::ActivationView view(std::int64_t rows) const {
    return {device->get(), stride, rows, heads, dim, true, dtype};
  }

  std::int64_t heads, dim;
  DType dtype;
  std::int64_t stride;
  std::vector<float> values;  // (rows, stride)
  std::unique_ptr<DeviceBuffer> device;
};

struct Refused : std::runtime_error {
  explicit Refused(const NonFiniteLocation& found_)
      : std::runtime_error("refused"), found(found_) {}
  NonFiniteLocation found;
};

class KeptMoments : public MomentConsumer {
 public:
  void add(const LayerMoments& part) override { parts.push_back(part); }
  void throw_non_finite(const NonFiniteLocation& found) override { throw Refused(found); }
  std::vector<LayerMoments> parts;
};

LayerMoments on_gpu(const PlantedRows& rows, const Batch& batch, const MomentRequest& request) {
  cuda::GpuStream stream;
  cuda::HostTransfers results(stream, 1 << 20);
  cuda::MomentStatistics moments(results, stream);
  require(cudaDeviceSynchronize());
  KeptMoments sink;
  moments.begin_batch(batch);
  moments.add(rows.view(batch.rows()), request, sink);
  results.deliver_all();
  return sink.parts.at(0);
}

LayerMoments on_cpu(const PlantedRows& rows, const Batch& batch, const MomentRequest& request) {
  Tensor x({batch.rows(), rows.heads, rows.dim});
  for (std::int64_t row = 0; row < batch.rows(); ++row)
    std::copy_n(rows.values.begin() + row * rows.stride, rows.heads * rows.dim,
                x.view().data<float>() + row * rows.heads * rows.dim);
  auto merged = make_layer_moments(request.shape);
  for (const auto& sequence : batch.sequences)
    merge_moments(merged, compute_document_moments(x, sequence, request).moments);
  return merged;
}

// The bounds of the numerical rules, as shares of each number's scale.
struct Bounds {
  double mean, m2, position, powers, pair;
};
Bounds bounds_of(DType dtype) {
  // Powers are summed around the centre of the run: where a set of few rows lies far from it, that
  // many digits go.
  if (dtype == DType::f32) return {1e-12, 1e-11, 1e-11, 1e-6, 1e-12};
  return {1e-6, 1e-5, 1e-5, 1e-4, 1e-6};
}

// The largest error of each kind, as a share of what is allowed.
struct Worst {
  double mean = 0, m2 = 0, ct = 0, cu = 0, m3 = 0, m4 = 0, pair = 0, norm = 0;

  static void raise(double& worst, double found, double expected, double allowed) {
    const double error = std::abs(found - expected);
    if (error == 0) return;
    const double share = error / allowed;
    worst = std::isfinite(share) ? std::max(worst, share) : INFINITY;
  }
};

Worst compare(const HeadMoments& found, const HeadMoments& expected, const Bounds& bounds) {
  EXPECT_EQ(found.n(), expected.n());
  EXPECT_EQ(found.min, expected.min);
  EXPECT_EQ(found.max, expected.max);
  Worst worst;
  const auto n = static_cast<double>(expected.n());
  const auto dim = expected.dim;
  const auto variance = [&](std::int64_t head, std::int64_t i) {
    return expected.m2[static_cast<std::size_t>(head * triangle_size(dim) +
                                                triangle_index(dim, i, i))] /
           n;
  };
  for (std::int64_t head = 0; head < expected.heads; ++head) {
    for (std::int64_t i = 0; i < dim; ++i) {
      const auto at = static_cast<std::size_t>(head * dim + i);
      const double sigma = std::sqrt(variance(head, i));
      Worst::raise(worst.mean, found.mean[at], expected.mean[at], bounds.mean * sigma);
      const double t = std::sqrt(expected.positions.t_m2), u = std::sqrt(expected.positions.u_m2);
      const double scale = bounds.position * sigma * std::sqrt(n);
      Worst::raise(worst.ct, found.ct[at], expected.ct[at], scale * t);
      Worst::raise(worst.cu, found.cu[at], expected.cu[at], scale * u);
      Worst::raise(worst.m3, found.m3[at], expected.m3[at], bounds.powers * n * std::pow(sigma, 3));
      Worst::raise(worst.m4, found.m4[at], expected.m4[at], bounds.powers * n * std::pow(sigma, 4));
      for (auto j = i; j < dim; ++j) {
        const auto place =
            static_cast<std::size_t>(head * triangle_size(dim) + triangle_index(dim, i, j));
        Worst::raise(worst.m2, found.m2[place], expected.m2[place],
                     bounds.m2 * n * sigma * std::sqrt(variance(head, j)));
      }
    }
    const auto at = static_cast<std::size_t>(head);
    Worst::raise(worst.norm, found.norm_mean[at], expected.norm_mean[at],
                 bounds.pair * expected.norm_mean[at]);
    EXPECT_NEAR(found.norm_max[at], expected.norm_max[at], 1e-6 * expected.norm_max[at]);
  }
  for (std::size_t i = 0; i < expected.pair_abs.size(); ++i)
    Worst::raise(worst.pair, found.pair_abs[i], expected.pair_abs[i],
                 bounds.pair * expected.pair_abs[i]);
  return worst;
}

void expect_within(const Worst& worst) {
  EXPECT_LE(worst.mean, 1) << "mean";
  EXPECT_LE(worst.m2, 1) << "m2";
  EXPECT_LE(worst.ct, 1) << "ct";
  EXPECT_LE(worst.cu, 1) << "cu";
  EXPECT_LE(worst.m3, 1) << "m3";
  EXPECT_LE(worst.m4, 1) << "m4";
  EXPECT_LE(worst.pair, 1) << "pair_abs";
  EXPECT_LE(worst.norm, 1) << "norm_mean";
  std::printf("  of the bounds: mean %.3f m2 %.3f ct %.3f cu %.3f m3 %.3f m4 %.3f pair %.3f\n",
              worst.mean, worst.m2, worst.ct, worst.cu, worst.m3, worst.m4, worst.pair);
}

// A bucket may hold few rows: its errors are measured against the spread of the whole set.
void compare_buckets(const LayerMoments& found, const LayerMoments& expected,
                     const Bounds& bounds) {
  EXPECT_EQ(found.buckets.n, expected.buckets.n);
  ASSERT_EQ(found.buckets.cov.size(), expected.buckets.cov.size());
  const auto all = all_rows(expected);
  const auto& b = expected.buckets;
  Worst worst;
  for (std::int64_t head = 0; head < b.heads; ++head)
    for (std::int64_t bucket = 0; bucket < b.buckets; ++bucket) {
      const auto n = static_cast<double>(b.n[static_cast<std::size_t>(bucket)]);
      if (n == 0) continue;
      const auto sigma = [&](std::int64_t i) {
        return std::sqrt(all.m2[static_cast<std::size_t>(head * triangle_size(b.dim) +
                                                         triangle_index(b.dim, i, i))] /
                         static_cast<double>(all.n()));
      };
      for (std::int64_t i = 0; i < b.dim; ++i) {
        const auto at = static_cast<std::size_t>((head * b.buckets + bucket) * b.dim + i);
        // Sums of a chunk come in float32, whatever the type.
        const double mean = std::max(bounds.mean, 1e-6), m2 = std::max(bounds.m2, 1e-6);
        Worst::raise(worst.mean, found.buckets.mean[at], b.mean[at], mean * sigma(i));
        Worst::raise(worst.m2, found.buckets.m2[at], b.m2[at], m2 * n * sigma(i) * sigma(i));
        if (b.cov.empty()) continue;
        for (auto j = i; j < b.dim; ++j) {
          const auto place = static_cast<std::size_t>(
              (head * b.buckets + bucket) * triangle_size(b.dim) + triangle_index(b.dim, i, j));
          Worst::raise(worst.ct, found.buckets.cov[place], b.cov[place],
                       m2 * n * sigma(i) * sigma(j));
        }
      }
    }
  EXPECT_LE(worst.mean, 1) << "means of buckets";
  EXPECT_LE(worst.m2, 1) << "m2 of buckets";
  EXPECT_LE(worst.ct, 1) << "covariances of buckets";
}

class MomentStatistics : public GpuTest<testing::TestWithParam<std::tuple<DType, std::int64_t>>> {
 protected:
  DType dtype() const { return std::get<0>(GetParam()); }
  std::int64_t dim() const { return std::get<1>(GetParam()); }

  void expect_equal_to_float64(const std::vector<std::int64_t>& lengths, MomentRequest request) {
    const auto batch = batch_of(lengths);
    const PlantedRows rows(batch, request.shape.heads, dim(), dtype());
    std::vector<float> shift;
    request.shift = &shift;
    const auto found = on_gpu(rows, batch, request);
    const auto expected = on_cpu(rows, batch, request);
    const auto bounds = bounds_of(dtype());
    expect_within(compare(found.first, expected.first, bounds));
    expect_within(compare(found.body, expected.body, bounds));
    compare_buckets(found, expected, bounds);
    // The shifts are fixed now; a run that goes on with them has the same bits.
    EXPECT_FALSE(shift.empty());
    const auto again = on_gpu(rows, batch, request);
    EXPECT_EQ(again.body.m2, found.body.m2);
    EXPECT_EQ(again.first.m2, found.first.m2);
    EXPECT_EQ(again.body.m4, found.body.m4);
    EXPECT_EQ(again.body.cu, found.body.cu);
    EXPECT_EQ(again.body.pair_abs, found.body.pair_abs);
    EXPECT_EQ(again.buckets.m2, found.buckets.m2);
  }

  MomentRequest request(std::int64_t heads) const {
    return {.shape = {.heads = heads, .dim = dim(), .pairs = dim() / 2, .buckets = 16},
            .first = 4,
            .bucket_size = 256};
  }
};

TEST_P(MomentStatistics, OfOneDocumentAreThoseOfFloat64) {
  for (const std::int64_t length : {512, 4096}) {
    SCOPED_TRACE(length);
    expect_equal_to_float64({length}, request(3));
  }
}

// Documents and buckets end inside chunks; some documents are shorter than the first tokens.
TEST_P(MomentStatistics, OfPackedDocumentsAreThoseOfFloat64) {
  auto cut = request(2);
  cut.shape.pairs = dim() / 4;  // partial rotation
  cut.shape.buckets = 5;
  cut.shape.bucket_covariance = true;
  cut.bucket_size = 100;
  for (const bool interleaved : {false, true}) {
    cut.interleaved = interleaved;
    expect_equal_to_float64({1, 3, 4, 5, 255, 256, 257, 1000, 31, 700}, cut);
  }
}

TEST_P(MomentStatistics, NameTheDocumentAndHeadOfANumberThatIsNotFinite) {
  const auto batch = batch_of({300, 20, 600});
  PlantedRows rows(batch, 3, dim(), dtype());
  const auto element = static_cast<std::int64_t>(dtype_size(dtype()));
  const auto at = (330 * rows.stride + 2 * dim() + 1) * element;  // document 2, head 2
  require(cudaMemset(rows.device->get<std::byte>() + at, 0xff, static_cast<std::size_t>(element)));
  std::vector<float> shift;
  auto wanted = request(3);
  wanted.shift = &shift;
  try {
    on_gpu(rows, batch, wanted);
    FAIL() << "not refused";
  } catch (const Refused& refused) {
    EXPECT_EQ(refused.found.head, 2);
    EXPECT_EQ(refused.found.sequence, 2);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, MomentStatistics,
                         testing::Combine(testing::Values(DType::bf16, DType::f16, DType::f32),
                                          testing::Values(16, 64, 80, 128, 256)),
                         [](const auto& parameters) {
                           return std::string(dtype_name(std::get<0>(parameters.param))) + "_" +
                                  std::to_string(std::get<1>(parameters.param));
                         });

class LongMomentStatistics : public MomentStatistics {};

TEST_P(LongMomentStatistics, AreThoseOfFloat64) {
  auto cut = request(1);
  cut.bucket_size = 8192;
  expect_equal_to_float64({131072}, cut);
}

INSTANTIATE_TEST_SUITE_P(Types, LongMomentStatistics, testing::Values(std::tuple(DType::bf16, 128)),
                         [](const auto&) { return "bfloat16_128"; });

// Every row once, in chunks of one document, set and bucket.
TEST(MomentChunks, CoverEveryRow) {
  const auto batch = batch_of({1, 3, 4, 5, 255, 256, 257, 1000});
  const auto chunks = cuda::split_sequences_into_chunks(batch.sequences, {4, 100, 5});
  std::vector<int> seen(static_cast<std::size_t>(batch.rows()));
  for (std::size_t i = 0; i < chunks.chunks.size(); ++i) {
    const auto& chunk = chunks.chunks[i];
    const auto& sequence = batch.sequences[static_cast<std::size_t>(chunk.sequence)];
    const bool is_first = static_cast<std::int32_t>(i) < chunks.body;
    EXPECT_EQ(chunk.row - sequence.begin, chunk.position);
    EXPECT_LE(chunk.position % 256 + chunk.rows, 256);
    EXPECT_EQ(chunk.position < 4, is_first);
    EXPECT_TRUE(!is_first || chunk.position + chunk.rows <= 4);
    EXPECT_EQ(std::min(chunk.position / 100, 4), chunk.bucket);
    EXPECT_EQ(std::min((chunk.position + chunk.rows - 1) / 100, 4), chunk.bucket);
    for (int row = 0; row < chunk.rows; ++row) ++seen[static_cast<std::size_t>(chunk.row + row)];
  }
  for (const int times : seen) EXPECT_EQ(times, 1);

  const auto work = cuda::schedule_moments(chunks, 5, 16, true);
  std::int32_t next = 0;
  for (const auto& segment : work.segments) {
    EXPECT_EQ(segment.begin, next);
    EXPECT_LT(segment.begin, segment.end);
    next = segment.end;
  }
  EXPECT_EQ(next, static_cast<std::int32_t>(chunks.chunks.size()));
  EXPECT_EQ(work.segments[static_cast<std::size_t>(work.body)].begin, chunks.body);
}

}  // namespace
}  // namespace qkscope
