#include "tables/table.h"

#include <limits>

#include <gtest/gtest.h>

namespace qkscope {
namespace {

TEST(Table, WritesFullPrecisionQuotesAndEmptyForNan) {
  Table table;
  table.column("n", Table::Type::integer)
      .column("x", Table::Type::real)
      .column("s", Table::Type::text)
      .column("b", Table::Type::boolean);
  table.add({std::int64_t{1}, 0.1, "a \"b\", c", std::int64_t{1}});
  table.add({std::int64_t{-2}, std::numeric_limits<double>::quiet_NaN(), "plain", std::int64_t{0}});
  table.add({std::int64_t{3}, 1.0 / 3, "", std::int64_t{0}});
  EXPECT_EQ(
      table.to_csv(),
      "n,x,s,b\n1,0.1,\"a \"\"b\"\", c\",true\n-2,,plain,false\n3,0.3333333333333333,,false\n");
}

}  // namespace
}  // namespace qkscope
