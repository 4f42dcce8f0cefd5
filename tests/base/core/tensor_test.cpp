#include "qkscope/tensor.h"

#include <cstdint>

#include <gtest/gtest.h>

#include "base/core/error.h"

namespace qkscope {
namespace {

TEST(Tensor, OwnsAlignedContiguousMemory) {
  Tensor tensor({3, 5});
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data<float>()) % 64, 0u);
  EXPECT_EQ(tensor.view().strides(), Shape({5, 1}));
  EXPECT_TRUE(tensor.view().is_contiguous());
  EXPECT_EQ(tensor.view().size_bytes(), 60u);
  EXPECT_EQ(tensor.shape().to_string(), "[3, 5]");
}

TEST(Tensor, RowsBorrowTheSameMemory) {
  Tensor tensor({4, 2});
  for (int i = 0; i < 8; ++i) tensor.data<float>()[i] = static_cast<float>(i);
  const ConstTensorView rows = tensor.view().rows(1, 3);
  EXPECT_EQ(rows.shape(), Shape({2, 2}));
  EXPECT_EQ(rows.data<float>()[0], 2.0f);
  EXPECT_THROW(tensor.view().rows(3, 5), Error);
}

TEST(Tensor, ReadingAsAnotherTypeThrows) {
  Tensor tensor({2}, DType::bf16);
  EXPECT_THROW(tensor.data<float>(), Error);
}

TEST(Tensor, ImpossibleSizeIsAClearError) {
  try {
    Tensor tensor({std::int64_t{1} << 40, std::int64_t{1} << 12});
    FAIL() << "an allocation of 16 PiB went through";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::failure);
    EXPECT_NE(std::string(error.what()).find("out of memory"), std::string::npos);
  }
}

}  // namespace
}  // namespace qkscope
