// Unpickling of tensors, and rejection of everything else.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "error_message.h"
#include "input/checkpoint/safetensors.h"
#include "sanitized.h"

namespace qkscope {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using namespace std::string_literals;

auto read(const std::string& pickle) {
  return read_tensor_pickle(std::as_bytes(std::span(pickle)), "file");
}

std::string pickle_refusal(const std::string& pickle) {
  return bad_input_message([&] { read(pickle); });
}

std::string text(const std::string& value) {
  return "\x8c"s + static_cast<char>(value.size()) + value;
}

// (("storage", torch.FloatStorage, "7", "cpu", 100), 4, (2, 3), (3, 1), False, OrderedDict())
const std::string kStorage =
    "(" + text("storage") + "ctorch\nFloatStorage\n" + text("7") + text("cpu") + "KdtQ";
const std::string kTensor = "ctorch._utils\n_rebuild_tensor_v2\n(" + kStorage +
                            "K\x04K\x02K\x03\x86K\x03K\x01\x86\x89"s +
                            "ccollections\nOrderedDict\n)RtR";

TEST(TensorPickle, StateDictionariesAreRead) {
  const auto tensors = read("\x80\x02}(" + text("a") + kTensor + text("b") + kTensor + "u.");
  ASSERT_EQ(tensors.size(), 2u);
  const auto& a = tensors.at("a");
  EXPECT_EQ(a.storage, "7");
  EXPECT_EQ(a.dtype, DType::f32);
  EXPECT_EQ(a.offset, 4);
  EXPECT_THAT(a.shape, ElementsAre(2, 3));
  EXPECT_THAT(a.strides, ElementsAre(3, 1));
}

TEST(TensorPickle, ParametersAndOrderedDictionariesAreRead) {
  const auto parameter = "ctorch._utils\n_rebuild_parameter\n(" + kTensor + "\x88}tR";
  const auto tensors = read(
      "\x80\x02"
      "ccollections\nOrderedDict\n)R" +
      text("a") + parameter + "s}b.");
  EXPECT_EQ(tensors.count("a"), 1u);
}

TEST(TensorPickle, OtherOpcodesAndGlobalsAreNamedInTheError) {
  EXPECT_THAT(pickle_refusal("cos\nsystem\n(" + text("true") + "tR."),
              HasSubstr("global \"os.system\""));
  EXPECT_THAT(pickle_refusal(text("builtins") + text("eval") + "\x93."),
              HasSubstr("global \"builtins.eval\""));
  EXPECT_THAT(pickle_refusal("}ctorch\nFloatStorage\n)R."),
              HasSubstr("\"torch.FloatStorage\" is called"));
  EXPECT_THAT(pickle_refusal("i"), HasSubstr("opcode 0x69"));
  EXPECT_THAT(pickle_refusal("}(" + text("epoch") + "K\x03u."), HasSubstr("\"epoch\", a number"));
  EXPECT_THAT(pickle_refusal("}(" + text("optimizer") + "}u."), HasSubstr("\"optimizer\", a dict"));
  EXPECT_THAT(pickle_refusal("K\x03."), HasSubstr("it holds a number, expected a dictionary"));
  EXPECT_THAT(pickle_refusal("\x80\x06."), HasSubstr("protocol 6"));
}

TEST(TensorPickle, MalformedPicklesAreRejected) {
  const auto whole = "\x80\x02}" + text("a") + kTensor + "s.";
  read(whole);
  for (std::size_t length = 0; length < whole.size(); ++length)
    EXPECT_FALSE(pickle_refusal(whole.substr(0, length)).empty()) << length;
  EXPECT_THAT(pickle_refusal("0."), HasSubstr("opcode"));
  EXPECT_THAT(pickle_refusal("t."), HasSubstr("more from the stack"));
  EXPECT_THAT(pickle_refusal("h\x01."), HasSubstr("recalls 1"));
  EXPECT_THAT(pickle_refusal("N" + std::string(100, '\x85') + "."), HasSubstr("64 deep"));
  EXPECT_THAT(pickle_refusal("}}s."), HasSubstr("more from the stack"));
  // A self-referential dictionary is rejected and does not leak memory.
  EXPECT_THAT(pickle_refusal("}q\x01" + text("a") + "h\x01s."), HasSubstr("\"a\", a dict"));
}

// A pickle of a megabyte can recall one memoised value half a million times.
TEST(TensorPickle, RecalledValuesTakeNoMemoryOfTheirOwn) {
  const auto megabytes_for = [](const std::string& pickle) {
    const pid_t child = ::fork();
    if (child == 0) {
      const auto peak = [] {
        rusage usage{};
        ::getrusage(RUSAGE_SELF, &usage);
        return usage.ru_maxrss / 1024;
      };
      const auto before = peak();
      pickle_refusal(pickle);
      ::_exit(static_cast<int>(std::min(peak() - before, 250L)));
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  const auto repeated = [](const std::string& part, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += part;
    return all;
  };
  // Megabytes: 16 and 64 times the pickle of a megabyte or less. The address sanitizer keeps freed
  // memory for a while.
  constexpr int kMost = kSanitized ? 240 : 80;
  const auto long_text = "X\0\0\x08\0"s + std::string(std::size_t{1} << 19, 'a') + "q\1"s;
  const auto long_tuple = "(" + repeated("K\1"s, 100'000) + "tq\2"s;
  const auto tensor = kTensor + "q\3"s;
  for (const auto& pickle :
       {long_text + "(" + repeated("h\1"s, 9'000) + "t.",         // in a tuple
        long_text + repeated("}h\1Ns"s, 2'000) + ".",             // keys of dictionaries
        tensor + long_text + repeated("}h\1h\3s"s, 2'000) + ".",  // names of tensors
        long_tuple +
            repeated("ctorch._utils\n_rebuild_tensor_v2\n(" + kStorage + "K\1h\2h\2\x89NtR"s, 90) +
            ".",
        std::string(1'000'000, 'N') + ".", "N" + std::string(1'000'000, '\x94') + "."})
    EXPECT_LE(megabytes_for(pickle), kMost) << pickle.size();
}

}  // namespace
}  // namespace qkscope
