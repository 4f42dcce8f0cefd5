#include <gtest/gtest.h>

#include "study/cluster/slurm.h"

namespace qkscope {
namespace {

TEST(ErrorLine, IsTheLastLineWithAnError) {
  EXPECT_EQ(find_error_line("first 0 of 8\nerror: a: not there\nerror: disk full\nbye\n"),
            "error: disk full");
}

TEST(ErrorLine, IncludesErrorsOfSlurmAndTheShell) {
  EXPECT_EQ(find_error_line("4 of 8\nslurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026 ***\n"),
            "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026 ***");
  EXPECT_EQ(find_error_line("a\nscript: line 9: 77 Killed   qkscope\n"),
            "script: line 9: 77 Killed   qkscope");
}

TEST(ErrorLine, PrefersTheReasonOfARequeueToSlurmsNotice) {
  EXPECT_EQ(find_error_line(
                "qkscope: ended with status 137; requeued, 1 of 3\n"
                "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026 DUE TO JOB REQUEUE ***\n"),
            "qkscope: ended with status 137; requeued, 1 of 3");
}

TEST(ErrorLine, IsTheLastLineOfALogWithoutErrors) {
  EXPECT_EQ(find_error_line("3 of 8\n4 of 8\n\n"), "4 of 8");
  EXPECT_EQ(find_error_line(""), "");
}

TEST(ErrorLine, EscapesControlCharacters) {
  EXPECT_EQ(find_error_line("error: \x1b[2J"), "error: \\x1b[2J");
}

TEST(ErrorLine, IsEmptyForAMissingFile) {
  EXPECT_EQ(read_error_line("/nowhere/log"), "");
}

}  // namespace
}  // namespace qkscope
