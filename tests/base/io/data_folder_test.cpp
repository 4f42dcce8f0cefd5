#include <cstdlib>

#include <gtest/gtest.h>

#include "base/io/folder.h"
#include "paths.h"

namespace qkscope {
namespace {

TEST(DataFolder, TheEnvironmentVariableReplacesAllOthers) {
  setenv("QKSCOPE_DATA", "/some/where", 1);
  EXPECT_EQ(shared_data_folders(), std::vector<std::string>{"/some/where"});
  unsetenv("QKSCOPE_DATA");
}

TEST(DataFolder, TheInstallationComesBeforeTheSourceTree) {
  unsetenv("QKSCOPE_DATA");
  const auto folders = shared_data_folders();
  ASSERT_GE(folders.size(), 2u);
  EXPECT_TRUE(folders.front().ends_with("/share/qkscope")) << folders.front();
  EXPECT_EQ(folders.back(), source_path("share"));
}

TEST(DataFolder, HelpersAreInLibexecOfTheInstallation) {
  for (const auto& folder : helper_program_folders())
    EXPECT_TRUE(folder.ends_with("/libexec/qkscope")) << folder;
  EXPECT_FALSE(helper_program_folders().empty());
}

}  // namespace
}  // namespace qkscope
