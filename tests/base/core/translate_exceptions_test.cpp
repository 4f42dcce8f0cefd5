#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <new>
#include <regex>

#include <gtest/gtest.h>

#include "base/core/error.h"
#include "base/core/text.h"
#include "paths.h"

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

// The table of docs/explanation/durability.md is what the program does.
TEST(ExitCodes, AreThoseOfTheDocumentation) {
  const std::map<std::string, int> numbers = {{"EACCES", EACCES},
                                              {"EAGAIN", EAGAIN},
                                              {"EBUSY", EBUSY},
                                              {"EDQUOT", EDQUOT},
                                              {"EEXIST", EEXIST},
                                              {"EFBIG", EFBIG},
                                              {"EIO", EIO},
                                              {"EISDIR", EISDIR},
                                              {"ELOOP", ELOOP},
                                              {"EMFILE", EMFILE},
                                              {"ENFILE", ENFILE},
                                              {"ENODEV", ENODEV},
                                              {"ENOENT", ENOENT},
                                              {"ENOLCK", ENOLCK},
                                              {"ENOMEM", ENOMEM},
                                              {"ENOSPC", ENOSPC},
                                              {"ENOSYS", ENOSYS},
                                              {"EPERM", EPERM},
                                              {"ENOTDIR", ENOTDIR},
                                              {"ENAMETOOLONG", ENAMETOOLONG},
                                              {"EROFS", EROFS},
                                              {"ESTALE", ESTALE},
                                              {"ETIMEDOUT", ETIMEDOUT}};
  std::ifstream page(source_path("docs/explanation/durability.md"));
  const std::regex row(R"(\| (E[A-Z, ]+) \| ([12]) \|.*)");
  std::size_t found = 0;
  for (std::string line; std::getline(page, line);) {
    std::smatch parts;
    if (!std::regex_match(line, parts, row)) continue;
    for (const auto& name : split(parts[1].str(), ',')) {
      const auto number = numbers.at(name.substr(name.find_first_not_of(' ')));
      EXPECT_EQ(Error(error_kind_from_errno(number), "").exit_code(), std::stoi(parts[2])) << name;
      ++found;
    }
  }
  EXPECT_EQ(found, numbers.size());
}

}  // namespace
}  // namespace qkscope
