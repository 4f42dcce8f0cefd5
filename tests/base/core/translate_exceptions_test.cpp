#include <filesystem>
#include <functional>
#include <new>

#include <gtest/gtest.h>

#include "base/core/error.h"

namespace qkscope {
namespace {

// Returns the Error that translate_exceptions() throws.
Error error_of(const std::function<void()>& body) {
  try {
    translate_exceptions(body);
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {ErrorKind::failure, ""};
}

TEST(TranslateExceptions, ReturnsTheResultOfTheBody) {
  EXPECT_EQ(translate_exceptions([] { return 42; }), 42);
  int number = 0;
  EXPECT_EQ(&translate_exceptions([&]() -> int& { return number; }), &number);
}

TEST(TranslateExceptions, ErrorsPassUnchanged) {
  const auto error = error_of([] { throw Error(ErrorKind::bad_input, "x: found 1, expected 2"); });
  EXPECT_EQ(error.kind(), ErrorKind::bad_input);
  EXPECT_STREQ(error.what(), "x: found 1, expected 2");
}

TEST(TranslateExceptions, MissingFilesAreBadInput) {
  const auto error = error_of([] { std::filesystem::directory_iterator("/nowhere/at/all"); });
  EXPECT_EQ(error.kind(), ErrorKind::bad_input);
  EXPECT_NE(std::string(error.what()).find("/nowhere/at/all"), std::string::npos) << error.what();
}

TEST(TranslateExceptions, OtherExceptionsAreFailures) {
  EXPECT_STREQ(error_of([] { throw std::bad_alloc(); }).what(), "out of memory");
  for (const auto& body : std::vector<std::function<void()>>{
           [] { throw std::bad_alloc(); }, [] { throw std::out_of_range("index"); },
           [] { throw std::system_error(EAGAIN, std::system_category()); }, [] { throw 7; }})
    EXPECT_EQ(error_of(body).kind(), ErrorKind::failure);
}

}  // namespace
}  // namespace qkscope
