// Keys appended in pieces have the bits of keys packed at once.
#include "engine/ops/packed_keys.h"

#include <cstring>

#include <gtest/gtest.h>

#include "cpu_targets.h"
#include "engine/ops/attention.h"
#include "random_tensor.h"

namespace qkscope {
namespace {

class StoredKeys : public EachCpuTarget {};

struct StoredCase {
  std::int64_t n_heads, n_kv_heads, d_head, window;
  float softcap;
  std::int64_t d_value;
};

constexpr std::int64_t kLength = 530;

TEST_P(StoredKeys, HaveTheBitsOfKeysPackedAtOnce) {
  for (const auto& [n_heads, n_kv_heads, d, window, softcap, d_value] :
       {StoredCase{9, 3, 64, 0, 0.0f, 64}, StoredCase{4, 4, 20, 100, 0.0f, 20},
        StoredCase{8, 1, 33, 0, 5.0f, 33}, StoredCase{2, 1, 7, 300, 0.0f, 7},
        StoredCase{4, 4, 24, 0, 0.0f, 13}, StoredCase{3, 3, 9, 100, 0.0f, 30}}) {
    const auto q = random_tensor({kLength, n_heads, d}, 1, 1.5f);
    const auto k = random_tensor({kLength, n_kv_heads, d}, 2);
    const auto v = random_tensor({kLength, n_kv_heads, d_value}, 3);
    const std::vector<Sequence> whole = {{0, kLength}};
    AttentionInput input{.q = q, .k = k, .v = v, .sequences = whole, .scale = 0.3f};
    input.window = window;
    input.softcap = softcap;
    Tensor expected({kLength, n_heads, d_value});
    compute_attention(input, expected);

    LayerKeyValueCache store(2, n_kv_heads, d, d_value);
    std::int64_t past = 0;
    for (const std::int64_t length : {200, 1, 1, 53, 1, 1, 256, 17}) {
      const std::vector<Sequence> piece = {{0, length, past, 1}};
      const auto end = past + length;
      store.append(k.view().rows(past, end), v.view().rows(past, end), piece);
      const auto packed = store.packed_view(piece);
      auto part = input;
      part.q = q.view().rows(past, end);
      part.sequences = piece;
      part.packed = &packed;
      Tensor z({length, n_heads, d_value});
      compute_attention(part, z);
      EXPECT_EQ(std::memcmp(z.view().bytes(), expected.view().rows(past, end).bytes(),
                            z.view().size_bytes()),
                0)
          << "positions " << past << " to " << end << ", heads of " << d;
      const auto rows = store.unpack(piece);
      EXPECT_EQ(std::memcmp(rows.k.view().bytes(), k.view().bytes(), rows.k.view().size_bytes()),
                0);
      EXPECT_EQ(std::memcmp(rows.v.view().bytes(), v.view().bytes(), rows.v.view().size_bytes()),
                0);
      past = end;
    }
  }
}

QKSCOPE_EACH_CPU_TARGET(StoredKeys);

}  // namespace
}  // namespace qkscope
