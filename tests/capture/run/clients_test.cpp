// Opens captures with datasets, pandas, pyarrow and DuckDB (check_clients.py).
#include "capture_fixture.h"
#include "python.h"

namespace qkscope {
namespace {

class CaptureClients : public CaptureFixture {};

TEST_F(CaptureClients, ThirdPartyLibrariesOpenEveryConfiguration) {
  const auto outcome = capture("out", "--set output.write_batch_size=512");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(run_python("tests/capture/run/check_clients.py", {file("out"), file("cache")}), 0);
}

}  // namespace
}  // namespace qkscope
