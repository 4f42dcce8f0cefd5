#include "analysis/results/results_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/io/json.h"
#include "base/io/output_file.h"
#include "error_message.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

using testing::HasSubstr;

TEST(ResultsFolder, TablesWithoutASummaryAreRefusedWhileTheyAreWritten) {
  const TemporaryFolder folder;
  write_file(folder.file("sums"), std::string(1000, 'x'));
  EXPECT_NO_THROW(check_results_complete(folder.path()));  // tables of another program
  write_file(folder.file(results_layout::kLockFile), "");
  EXPECT_THAT(bad_input_message([&] { check_results_complete(folder.path()); }),
              HasSubstr("an analysis is writing these results, or was killed"));
  const Json summary = {{"files", {{"sums", 1000}}}};
  write_file(folder.file(results_layout::kSummaryFile), summary.dump());
  EXPECT_NO_THROW(check_results_complete(folder.path()));
  write_file(folder.file("sums"), "");
  EXPECT_THAT(bad_input_message([&] { check_results_complete(folder.path()); }),
              HasSubstr("sums: has 0 bytes, expected 1000"));
}

}  // namespace
}  // namespace qkscope
