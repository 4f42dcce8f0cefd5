#include "study/cluster/task_log.h"

#include <gtest/gtest.h>

namespace qkscope {
namespace {

TEST(TaskLog, TheLastErrorTells) {
  EXPECT_EQ(telling_line("first 0 of 8\nerror: a: not there\nerror: disk full\nbye\n"),
            "error: disk full");
}

TEST(TaskLog, SlurmsOwnLinesTell) {
  EXPECT_EQ(telling_line("4 of 8\nslurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026 ***\n"),
            "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026 ***");
  EXPECT_EQ(telling_line("a\nscript: line 9: 77 Killed   qkscope\n"),
            "script: line 9: 77 Killed   qkscope");
}

TEST(TaskLog, AScriptThatRequeuedItselfSaysWhy) {
  EXPECT_EQ(
      telling_line("qkscope: ended with status 137; requeued, 1 of 3\n"
                   "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026 DUE TO JOB REQUEUE ***\n"),
      "qkscope: ended with status 137; requeued, 1 of 3");
}

TEST(TaskLog, WithoutAnErrorTheLastLineTells) {
  EXPECT_EQ(telling_line("3 of 8\n4 of 8\n\n"), "4 of 8");
  EXPECT_EQ(telling_line(""), "");
}

TEST(TaskLog, CannotMoveTheCursor) {
  EXPECT_EQ(telling_line("error: \x1b[2J"), "error: \\x1b[2J");
}

TEST(TaskLog, AFileThatIsNotThereSaysNothing) {
  EXPECT_EQ(telling_line_of("/nowhere/log"), "");
}

}  // namespace
}  // namespace qkscope
