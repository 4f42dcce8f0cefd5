// Messages of the programs about GPUs, with the fake drivers and modules of
// tests/engine/device/fakes.
#include <gmock/gmock.h>

#include "run_program.h"

namespace qkscope {
namespace {

using testing::HasSubstr;

class DeviceChoice : public testing::Test {
 protected:
  // `driver` is a folder of fake drivers; the module is a fake module, or is missing.
  Outcome run(const std::string& driver, const std::string& module, const std::string& options) {
    const auto fakes = program_folder() + "/../tests/fakes/";
    return run_program("env -u CUDA_VISIBLE_DEVICES LD_LIBRARY_PATH=" + fakes + driver +
                       " QKSCOPE_CUDA_MODULE=" + fakes + module + " qkscope trace --model " +
                       source_path("tests/golden/smollm3_list") +
                       " --token-ids 1,2 --hooks logits --out " + folder_.file("out.safetensors") +
                       " " + options);
  }
  void expect_refused(const std::string& driver, const std::string& module,
                      const std::string& reason) {
    const auto outcome = run(driver, module, "--device cuda");
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.err, HasSubstr("error: device cuda: " + reason));
    EXPECT_TRUE(outcome.err.ends_with("; use cpu\n")) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }

  TemporaryFolder folder_;
};

TEST_F(DeviceChoice, AnUnusableGpuIsRefusedWithTheReason) {
  expect_refused("no_gpu", "libgood.so", "the NVIDIA driver finds no GPU");
  expect_refused("old_gpu", "libgood.so", "the GPU has compute capability 7.0, and 8.0 or later");
  expect_refused("one_gpu", "none.so", "this package has no part for NVIDIA GPUs");
  expect_refused("one_gpu", "libgood.so", "it is a fake");
}

TEST_F(DeviceChoice, AutoFallsBackToTheCpuAndWarnsOnce) {
  const auto outcome = run("old_gpu", "libgood.so", "");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.err,
            "info: the CPU is used: the GPU has compute capability 7.0, and 8.0 or later is "
            "needed\n");
  EXPECT_EQ(run("old_gpu", "libgood.so", "--device cpu").err, "");
}

TEST_F(DeviceChoice, ProgramsDoNotLinkCuda) {
  const auto needed = run_program("ldd " + program_folder() + "/qkscope");
  EXPECT_EQ(needed.status, 0);
  for (const auto* library : {"libcuda", "libcublas", "libcudnn", "libnvrtc"})
    EXPECT_EQ(needed.out.find(library), std::string::npos) << needed.out;
}

}  // namespace
}  // namespace qkscope
