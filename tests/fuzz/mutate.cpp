#include "mutate.h"

#include <array>
#include <cstddef>
#include <random>

#include "mutate_structure.h"

namespace qkscope {
namespace {

constexpr std::size_t kLongest = 1 << 16;
constexpr std::array kAwkwardNumbers = {"0",
                                        "-1",
                                        "1",
                                        "1.5",
                                        "1e400",
                                        "-0",
                                        "255",
                                        "65536",
                                        "4294967295",
                                        "4294967296",
                                        "9223372036854775807",
                                        "9223372036854775808",
                                        "18446744073709551615",
                                        "18446744073709551616",
                                        "null",
                                        "\"\"",
                                        "[]",
                                        "{}"};

class Mutator {
 public:
  Mutator(const std::vector<std::string>& corpus, std::uint64_t seed)
      : corpus_(corpus), random_(seed), text_(corpus[below(corpus.size())]) {}

  std::string run() {
    for (auto edits = 1 + below(4); edits > 0; --edits) edit();
    if (text_.size() > kLongest) text_.resize(kLongest);
    return text_;
  }

 private:
  // Uses the modulo, because distributions differ between standard libraries.
  std::size_t below(std::size_t bound) {
    return bound == 0 ? 0 : static_cast<std::size_t>(random_() % bound);
  }

  void edit() {
    const auto at = below(text_.size() + 1);
    switch (below(7)) {
      case 0:
        if (at < text_.size()) text_[at] = static_cast<char>(text_[at] ^ (1 << below(8)));
        return;
      case 1:
        if (at < text_.size()) text_[at] = static_cast<char>(below(256));
        return;
      case 2:
        text_.erase(at, 1 + below(16));
        return;
      case 3:
        text_.insert(at, text_.substr(below(text_.size() + 1), 1 + below(64)));
        return;
      case 4:
        splice(at);
        return;
      case 5:
        text_ = mutate_structure(text_, random_());
        return;
      default:
        replace_number(at);
    }
  }

  void splice(std::size_t at) {
    const auto& other = corpus_[below(corpus_.size())];
    text_.replace(at, below(32), other.substr(below(other.size() + 1), 1 + below(64)));
  }

  void replace_number(std::size_t at) {
    constexpr const char* kDigits = "0123456789";
    const auto begin = text_.find_first_of(kDigits, at);
    if (begin == std::string::npos) return;
    const auto end = text_.find_first_not_of(kDigits, begin);
    text_.replace(begin, end == std::string::npos ? end : end - begin,
                  kAwkwardNumbers[below(kAwkwardNumbers.size())]);
  }

  const std::vector<std::string>& corpus_;
  std::mt19937_64 random_;
  std::string text_;
};

}  // namespace

std::string mutate(const std::vector<std::string>& corpus, std::uint64_t seed) {
  return Mutator(corpus, seed).run();
}

}  // namespace qkscope
