#include <cstdlib>
#include <fstream>

#include <gmock/gmock.h>

#include "base/core/log.h"
#include "engine/device/cuda_module.h"
#include "engine/device/module_stamp.h"
#include "error_message.h"
#include "paths.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::StartsWith;

// Fake drivers and modules of tests/engine/device/fakes.
std::string fake(const std::string& name) {
  return program_folder() + "/../tests/fakes/" + name;
}

CudaDriver fake_driver(const std::string& folder) {
  return probe_driver(fake(folder + "/libcuda.so.1"));
}

LoadedCudaModule opened(const std::string& file) {
  return open_cuda_module({file}, fake_driver("one_gpu"));
}

TEST(CudaDriver, AMissingDriverIsReported) {
  const auto driver = probe_driver("no-such-folder/libcuda.so.1");
  EXPECT_FALSE(driver.found);
  EXPECT_TRUE(driver.gpus.empty());
  EXPECT_EQ(driver.why_not,
            "there is no NVIDIA driver on this machine (libcuda.so.1 was not found)");
}

TEST(CudaDriver, ReportsComputeCapabilities) {
  const auto driver = fake_driver("one_gpu");
  EXPECT_TRUE(driver.found);
  EXPECT_EQ(driver.why_not, "");
  EXPECT_EQ(driver.version, 13000);
  ASSERT_EQ(driver.gpus.size(), 1u);
  EXPECT_EQ(driver.gpus[0].major, 9);
  EXPECT_EQ(driver.gpus[0].minor, 0);
}

TEST(CudaDriver, AMissingGpuIsReported) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::string before = visible == nullptr ? "" : visible;
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(fake_driver("no_gpu").why_not, "the NVIDIA driver finds no GPU");
  ::setenv("CUDA_VISIBLE_DEVICES", "7", 1);
  EXPECT_EQ(fake_driver("no_gpu").why_not,
            "the NVIDIA driver shows no GPU (CUDA_VISIBLE_DEVICES is '7')");
  if (visible == nullptr)
    ::unsetenv("CUDA_VISIBLE_DEVICES");
  else
    ::setenv("CUDA_VISIBLE_DEVICES", before.c_str(), 1);
}

TEST(CudaDriver, ALibraryThatIsNoDriverIsReported) {
  EXPECT_THAT(probe_driver(fake("libgood.so")).why_not,
              MatchesRegex(".*libgood.so is not an NVIDIA driver"));
}

TEST(CudaModule, IsSearchedBesideTheLibrary) {
  const auto files = cuda_module_files();
  const auto built = std::filesystem::path(program_folder()).parent_path() / "lib";
  EXPECT_THAT(files, testing::Contains((built / "libqkscope_cuda.so").string()));
  ::setenv("QKSCOPE_CUDA_MODULE", "/another.so", 1);
  EXPECT_THAT(cuda_module_files(), ElementsAre("/another.so"));
  ::unsetenv("QKSCOPE_CUDA_MODULE");
}

TEST(CudaModule, AMissingModuleIsReported) {
  EXPECT_EQ(opened("/no/such/module.so").why_not,
            "this package has no part for NVIDIA GPUs (/no/such/module.so does not exist; a build "
            "with nvcc makes it)");
}

TEST(CudaModule, ABrokenFileIsReported) {
  const TemporaryFolder folder;
  std::ofstream(folder.file("broken.so")) << "no shared object";
  const auto part = opened(folder.file("broken.so"));
  EXPECT_EQ(part.module, nullptr);
  EXPECT_THAT(part.why_not, StartsWith(folder.file("broken.so") + " cannot be loaded: "));
  EXPECT_THAT(opened(fake("one_gpu/libcuda.so.1")).why_not, HasSubstr("is not a part of qkscope"));
}

TEST(CudaModule, AModuleOfAnotherVersionIsRejected) {
  const auto part = opened(fake("libolder.so"));
  EXPECT_EQ(part.module, nullptr);
  EXPECT_THAT(part.why_not, HasSubstr("libolder.so belongs to another qkscope: found 0.0.1 "
                                      "(00000000), expected " QKSCOPE_MODULE_STAMP));
}

TEST(CudaModule, AMissingLibraryIsReportedWithAnInstallHint) {
  EXPECT_EQ(
      opened(fake("libneedy.so")).why_not,
      "libqkscope_cuda.so needs libcublasLt.so.99, which is not on this machine: 'pip install "
      "\"nvidia-cublas==99.*\"' or CUDA 99 brings it");
}

TEST(CudaModule, AnOldDriverIsReported) {
  auto driver = fake_driver("one_gpu");
  driver.version = 12080;
  EXPECT_EQ(open_cuda_module({fake("libgood.so")}, driver).why_not,
            "libqkscope_cuda.so is built with CUDA 13.0 and the NVIDIA driver serves up to 12.8: "
            "update it");
}

TEST(CudaModule, UsesErrorsLogAndThreadsOfTheLibrary) {
  const auto part = opened(fake("libgood.so"));
  ASSERT_NE(part.module, nullptr) << part.why_not;
  std::vector<std::string> heard;
  set_log_callback([&](LogLevel, std::string_view message) { heard.emplace_back(message); },
                   LogLevel::debug);
  EXPECT_EQ(part.module->gpu_incompatibility_reason(3), "it is a fake");
  set_log_callback(nullptr);
  EXPECT_THAT(heard, ElementsAre("asked for GPU 3"));
  EXPECT_EQ(part.module->free_memory_bytes(0), 1000);
  Tensor tensor({2});
  try {
    part.module->copy_values(tensor, tensor);
    ADD_FAILURE() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::failure);
    EXPECT_STREQ(error.what(), "a failure of the fake");
  }
}

}  // namespace
}  // namespace qkscope
