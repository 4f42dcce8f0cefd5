// AWS request signatures: the example of the AWS documentation.
#include <gmock/gmock.h>

#include "input/hub/http.h"
#include "input/store/object_store.h"

namespace qkscope {
namespace {

using testing::HasSubstr;

TEST(AwsSignature, MatchesTheExampleOfTheAwsDocumentation) {
  HttpRequest request{.url = parse_url("https://examplebucket.s3.amazonaws.com/test.txt"),
                      .headers = {{"Range", "bytes=0-9"}}};
  const double friday = 1369353600.0;  // 2013-05-24T00:00:00Z
  sign_request(request, "us-east-1",
               {.access_key = "AKIAIOSFODNN7EXAMPLE",
                .secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                .session_token = ""},
               friday);
  EXPECT_EQ(request.headers.back().first, "Authorization");
  const auto& value = request.headers.back().second;
  EXPECT_THAT(value, HasSubstr("Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/"));
  EXPECT_THAT(value, HasSubstr("SignedHeaders=host;range;x-amz-content-sha256;x-amz-date"));
  EXPECT_THAT(value, HasSubstr("Signature="
                               "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"));
}

}  // namespace
}  // namespace qkscope
