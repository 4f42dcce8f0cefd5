#include "backend/cuda/fused_attention.h"

#include <algorithm>
#include <compare>
#include <limits>
#include <map>
#include <unordered_map>
#include <vector>

#include <cudnn_frontend.h>

#include "backend/cuda/memory.h"
#include "backend/cuda/status.h"
#include "core/error.h"
#include "core/log.h"

namespace qkscope::cuda {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Tensor_attributes;

enum Name : std::int64_t { kQ = 1, kK, kV, kZ, kLengths, kOffsets, kOutputOffsets };

void check(cudnnStatus_t status, const char* operation) {
  if (status != CUDNN_STATUS_SUCCESS)
    failure("cuDNN: {} failed: {}", operation, cudnnGetErrorString(status));
}

// Documents of different lengths share a plan when the longest are about as long.
constexpr std::int64_t kLengthStep = 1024;

}  // namespace

struct FusedAttention::Library {
  // What a plan is made for.
  struct Key {
    std::int64_t documents, length, row_stride, z_stride, window;
    bool ragged;
    auto operator<=>(const Key&) const = default;
  };
  struct Plan {
    std::shared_ptr<fe::graph::Graph> graph;  // null: not supported
    std::int64_t workspace = 0;
  };

  explicit Library(cudaStream_t stream_) : stream(stream_) {
    check(cudnnCreate(&handle), "start");
    check(cudnnSetStream(handle, stream), "set the stream");
  }
  ~Library() { cudnnDestroy(handle); }

  Key key_for(const FusedAttentionArguments& a) const {
    const auto length = ragged ? (longest + kLengthStep - 1) / kLengthStep * kLengthStep : longest;
    const auto window = a.window >= longest ? 0 : a.window;
    return {static_cast<std::int64_t>(segments.size()),
            length,
            a.row_stride,
            a.z_stride,
            window,
            ragged};
  }

  const Plan& plan_for(const FusedAttentionArguments& a) {
    const auto key = key_for(a);
    const auto found = plans.find(key);
    if (found != plans.end()) return found->second;
    return plans[key] = make_plan(key, a);
  }

  Plan make_plan(const Key& key, const FusedAttentionArguments& a);
  void upload_documents(const FusedAttentionArguments& a);

  cudaStream_t stream;
  cudnnHandle_t handle = nullptr;
  std::map<Key, Plan> plans;
  DeviceBlock workspace;

  std::vector<Segment> segments;
  std::int64_t longest = 0;
  bool ragged = false;
  bool uploaded = false;
  DeviceBlock documents;  // int32: lengths, offsets in q, k and v, offsets in z
};

FusedAttention::FusedAttention(cudaStream_t stream) : library_(std::make_unique<Library>(stream)) {}
FusedAttention::~FusedAttention() = default;

void FusedAttention::begin(std::span<const Segment> segments) {
  auto& l = *library_;
  l.segments.assign(segments.begin(), segments.end());
  l.longest = 0;
  for (const auto& segment : segments) l.longest = std::max(l.longest, segment.length);
  l.ragged = std::any_of(segments.begin(), segments.end(),
                         [&](const Segment& segment) { return segment.length != l.longest; });
  l.uploaded = false;
}

FusedAttention::Library::Plan FusedAttention::Library::make_plan(const Key& key,
                                                                 const FusedAttentionArguments& a) {
  auto graph = std::make_shared<fe::graph::Graph>();
  graph->set_io_data_type(a.dtype == DType::f16 ? fe::DataType_t::HALF : fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  const auto numbers = [&](Name name, const char* text, std::int64_t count) {
    return graph->tensor(Tensor_attributes()
                             .set_name(text)
                             .set_uid(name)
                             .set_dim({count, 1, 1, 1})
                             .set_stride({1, 1, 1, 1})
                             .set_data_type(fe::DataType_t::INT32));
  };
  const auto offsets = key.ragged ? numbers(kOffsets, "offsets", key.documents + 1) : nullptr;
  const auto input = [&](Name name, const char* text, std::int64_t heads) {
    auto attributes = Tensor_attributes()
                          .set_name(text)
                          .set_uid(name)
                          .set_dim({key.documents, heads, key.length, a.d_head})
                          .set_stride({key.length * a.row_stride, a.d_head, a.row_stride, 1});
    if (offsets) attributes.set_ragged_offset(offsets);
    return graph->tensor(attributes);
  };
  auto options = fe::graph::SDPA_attributes()
                     .set_name("attention")
                     .set_generate_stats(false)
                     .set_attn_scale(a.scale)
                     .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
                     .set_diagonal_band_right_bound(0);
  if (key.window > 0) options.set_diagonal_band_left_bound(static_cast<int>(key.window));
  if (key.ragged) {
    const auto lengths = numbers(kLengths, "lengths", key.documents);
    options.set_padding_mask(true).set_seq_len_q(lengths).set_seq_len_kv(lengths);
  }
  const auto q = input(kQ, "q", a.n_heads);
  const auto k = input(kK, "k", a.n_kv_heads);
  const auto v = input(kV, "v", a.n_kv_heads);
  auto outputs = graph->sdpa(q, k, v, options);
  auto& z = outputs[0];
  z->set_output(true)
      .set_uid(kZ)
      .set_dim({key.documents, a.n_heads, key.length, a.d_head})
      .set_stride({key.length * a.z_stride, a.d_head, a.z_stride, 1});
  if (key.ragged)
    z->set_ragged_offset(numbers(kOutputOffsets, "output offsets", key.documents + 1));
  auto status = graph->build(handle, {fe::HeurMode_t::A});
  if (status.is_bad()) {
    log::debug("cuDNN has no attention for {} documents of {} tokens: {}", key.documents,
               key.length, status.get_message());
    return {};
  }
  return {graph, graph->get_workspace_size()};
}

void FusedAttention::Library::upload_documents(const FusedAttentionArguments& a) {
  if (!ragged || uploaded) return;
  const auto count = segments.size();
  std::vector<std::int32_t> numbers;
  for (const auto& segment : segments) numbers.push_back(static_cast<std::int32_t>(segment.length));
  for (const auto stride : {a.row_stride, a.z_stride}) {
    for (const auto& segment : segments)
      numbers.push_back(static_cast<std::int32_t>(segment.begin * stride));
    const auto& last = segments.back();
    numbers.push_back(static_cast<std::int32_t>((last.begin + last.length) * stride));
  }
  QKSCOPE_ASSERT(numbers.size() == count + 2 * (count + 1));
  const auto bytes = numbers.size() * sizeof(std::int32_t);
  documents.reserve(static_cast<std::int64_t>(bytes), "lengths of documents");
  cuda::check(
      cudaMemcpyAsync(documents.data(), numbers.data(), bytes, cudaMemcpyHostToDevice, stream),
      "copy lengths of documents");
  uploaded = true;
}

bool FusedAttention::attend(const FusedAttentionArguments& a) {
  auto& l = *library_;
  const bool served = (a.dtype == DType::bf16 || a.dtype == DType::f16) && a.d_head % 8 == 0 &&
                      a.d_head <= 256 && a.row_stride % 8 == 0;
  const auto& last = l.segments.back();
  const bool countable = (last.begin + last.length) * std::max(a.row_stride, a.z_stride) <=
                         std::numeric_limits<std::int32_t>::max();
  if (!served || (l.ragged && !countable)) return false;
  const auto& plan = l.plan_for(a);
  if (!plan.graph) return false;
  l.upload_documents(a);
  const auto count = l.segments.size();
  auto* lengths = l.documents.as<std::int32_t>();
  std::unordered_map<std::int64_t, void*> tensors = {{kQ, const_cast<void*>(a.q)},
                                                     {kK, const_cast<void*>(a.k)},
                                                     {kV, const_cast<void*>(a.v)},
                                                     {kZ, a.z}};
  if (l.ragged) {
    tensors[kLengths] = lengths;
    tensors[kOffsets] = lengths + count;
    tensors[kOutputOffsets] = lengths + 2 * count + 1;
  }
  auto* workspace = l.workspace.reserve(std::max<std::int64_t>(plan.workspace, 1), "attention");
  auto status = plan.graph->execute(l.handle, tensors, workspace);
  if (status.is_bad()) failure("cuDNN: attention failed: {}", status.get_message());
  return true;
}

}  // namespace qkscope::cuda
