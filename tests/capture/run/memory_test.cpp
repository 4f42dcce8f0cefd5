// Peak memory does not depend on the number of examples.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capture_fixture.h"
#include "paths.h"

namespace qkscope {
namespace {

class CaptureMemory : public CaptureFixture {
 protected:
  // Peak resident set size in KiB.
  long peak(int documents, const std::string& root) {
    write_documents(file("docs.jsonl"), documents, 30);
    // Row groups small enough that the short run fills several.
    const auto line = "PATH=\"" + program_folder() + ":$PATH\"; exec " +
                      command(root, "--threads 1 --set output.write_batch_size=512");
    const pid_t child = ::fork();
    if (child == 0) {
      ::execl("/bin/sh", "sh", "-c", line.c_str(), static_cast<char*>(nullptr));
      ::_exit(127);
    }
    int status = 0;
    struct rusage usage {};
    ::wait4(child, &status, 0, &usage);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return usage.ru_maxrss;
  }
};

TEST_F(CaptureMemory, PeakMemoryIsTheSameForTenTimesTheExamples) {
  if (kSanitized) GTEST_SKIP() << "sanitizers quarantine freed memory";
  const auto few = peak(250, "few");  // enough to fill segments and buffers
  const auto many = peak(2500, "many");
  fmt::print("peak memory: {} KiB for 250 documents, {} KiB for 2,500\n", few, many);
  EXPECT_LT(static_cast<double>(many), 1.05 * static_cast<double>(few));
}

}  // namespace
}  // namespace qkscope
