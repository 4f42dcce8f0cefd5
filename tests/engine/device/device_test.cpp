#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/device/backend.h"
#include "engine/model/loaded_checkpoint.h"
#include "error_message.h"
#include "paths.h"

namespace qkscope {
namespace {

TEST(Device, NamesAreParsedAndFormatted) {
  EXPECT_EQ(choose_device("cpu"), Device{});
  EXPECT_EQ(device_name(choose_device("cpu")), "cpu");
  EXPECT_EQ(device_name({Device::Kind::cuda, 3}), "cuda:3");
  const bool is_gpu = choose_device("auto").kind == Device::Kind::cuda;
  EXPECT_TRUE(!is_gpu || cuda_device_count() > 0);
}

TEST(Device, UnusableDevicesThrowWithAReason) {
  for (const auto* wanted : {"gpu", "cuda:", "cuda:x", "cuda:-1", "CUDA"})
    EXPECT_EQ(bad_input_message([&] { choose_device(wanted); }),
              std::string("device: found '") + wanted + "', expected auto, cpu, cuda or cuda:N");
  const auto missing = bad_input_message([] { choose_device("cuda:99"); });
  EXPECT_TRUE(missing.starts_with("device cuda:99: ")) << missing;
  const auto expected = cuda_device_count() == 0 ? why_no_cuda() + "; use cpu" : "no such GPU";
  EXPECT_NE(missing.find(expected), std::string::npos) << missing;
}

TEST(Device, ModelsWithoutACudaKernelAreRefusedBeforeAGpuIsLookedFor) {
  for (const auto& [family, computation] :
       {std::pair("falcon_h1", "Mamba 2 layers of wide heads"),
        std::pair("qwen3_next", "gated delta nets of wide heads"),
        std::pair("kimi_linear", "Kimi Delta Attention layers of wide heads")}) {
    auto model = load_unprocessed_checkpoint(golden_path(family));
    model.config.mixer.d_key = 257;
    EXPECT_NO_THROW(make_backend(model));
    EXPECT_EQ(bad_input_message([&] {
                make_backend(model, {.device = {Device::Kind::cuda, 0}});
              }),
              std::string("device cuda:0: ") + family + " models have " + computation +
                  ", for which there is no CUDA kernel; use --device cpu" +
                  (model.config.has_equal_heads()
                       ? ", or engine: transformers for captures and statistics"
                       : ""));
  }
}

TEST(Device, ModelsWhoseLayersDifferRunOnCuda) {
  for (const auto* family : {"gemma4_text", "gemma4_equal_heads", "kimi_linear"})
    EXPECT_NO_THROW(check_model_runs_on({Device::Kind::cuda, 0},
                                        load_unprocessed_checkpoint(golden_path(family)).config))
        << family;
}

TEST(Device, CopyValuesWorksBetweenHostTensors) {
  Tensor from({2, 3});
  for (int i = 0; i < 6; ++i) from.data<float>()[i] = static_cast<float>(i);
  Tensor to({6});  // another shape of the same size
  copy_values(to, from);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(to.data<float>()[i], static_cast<float>(i));
}

TEST(Batch, SequencesAreStoredOneAfterAnother) {
  Batch batch;
  batch.add(std::vector<std::int32_t>{5, 6, 7});
  batch.add(std::vector<std::int32_t>{8});
  EXPECT_EQ(batch.ids, (std::vector<std::int32_t>{5, 6, 7, 8}));
  EXPECT_EQ(batch.rows(), 4);
  EXPECT_EQ(batch.longest(), 3);
  ASSERT_EQ(batch.sequences.size(), 2u);
  EXPECT_EQ(batch.sequences[1].begin, 3);
  EXPECT_EQ(batch.sequences[1].length, 1);
}

}  // namespace
}  // namespace qkscope
