// Hand-written patterns against the same expressions in PCRE2, and the limits of PCRE2.
#include <array>

#include <gtest/gtest.h>

#include "base/core/error.h"
#include "base/core/text.h"
#include "error_message.h"
#include "input/tokenizer/sample_text.h"
#include "input/tokenizer/tokenizer_components.h"

namespace qkscope {
namespace {

const std::string kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

std::vector<std::string> pieces(const SearchPattern& pattern, const std::string& text) {
  std::vector<MatchOrGap> found;
  pattern.find(text, found);
  std::vector<std::string> out;
  for (const auto& [range, matched] : found) {
    out.push_back(text.substr(range.begin, range.end - range.begin));
  }
  return out;
}

TEST(FamilyPattern, SplitsLikeTheRegularExpression) {
  const auto llama3 = make_builtin_pattern(kLlama3);
  ASSERT_TRUE(llama3);
  using Pieces = std::vector<std::string>;
  EXPECT_EQ(pieces(*llama3, "I'LL see 12345  x\n\n y!\n"),
            (Pieces{"I", "'LL", " see", " ", "123", "45", " ", " x", "\n\n", " y", "!\n"}));
  const auto tekken = make_builtin_pattern(kTekken);
  ASSERT_TRUE(tekken);
  EXPECT_EQ(pieces(*tekken, "HTTPServer don't 42 a//\n"),
            (Pieces{"HTTPServer", " don", "'t", " ", "4", "2", " a", "//\n"}));
  EXPECT_FALSE(make_builtin_pattern("a+"));
}

class AgainstPcre2 : public testing::TestWithParam<std::string> {};

TEST_P(AgainstPcre2, HandWrittenMatcherGivesTheSamePieces) {
  const auto by_hand = make_builtin_pattern(GetParam());
  SearchPattern by_engine;
  try {
    by_engine = make_pcre2_pattern(GetParam(), "test");
  } catch (const Error&) {
    GTEST_SKIP() << "this build has no PCRE2 to compare with";
  }
  ASSERT_TRUE(by_hand);
  for (unsigned seed = 0; seed < 300; ++seed) {
    const std::string text = sample_text(300, seed);
    ASSERT_EQ(pieces(*by_hand, text), pieces(by_engine, text)) << text;
  }
}

std::string qwen2() {
  std::string expression = kLlama3;
  return expression.erase(expression.find("{1,3}"), 5);
}
constexpr std::array kFamilies = {"gpt2", "llama3", "qwen2", "tekken"};
INSTANTIATE_TEST_SUITE_P(Families, AgainstPcre2,
                         testing::Values(kGpt2Expression, kLlama3, qwen2(), kTekken),
                         [](const auto& expression) { return kFamilies[expression.index]; });

TEST(Pcre2Pattern, CatastrophicBacktrackingIsAnError) {
  SearchPattern pattern;
  try {
    pattern = make_pcre2_pattern("(a+)+$|(a|aa)+b", "test");
  } catch (const Error&) {
    GTEST_SKIP() << "this build has no PCRE2";
  }
  const std::string text = std::string(5000, 'a') + "c";
  const std::string message = bad_input_message([&] { pieces(pattern, text); });
  EXPECT_NE(message.find("gave up"), std::string::npos) << message;
}

TEST(Pcre2Pattern, RejectsAnInvalidExpression) {
  const std::string message = bad_input_message([] { make_pcre2_pattern("(a", "file: part"); });
  EXPECT_NE(message.find("file: part"), std::string::npos) << message;
}

TEST(Pcre2Pattern, EmptyMatchesAreFoundOnce) {
  std::vector<MatchOrGap> pieces;
  make_pcre2_pattern("x*", "t").find("axb", pieces);
  std::string found;
  for (const auto& [range, matched] : pieces)
    found += fmt::format("{}-{}{} ", range.begin, range.end, matched ? "!" : "");
  EXPECT_EQ(found, "0-0! 0-1 1-2! 2-3 3-3! ");
}

}  // namespace
}  // namespace qkscope
