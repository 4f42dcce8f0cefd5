// Seeded random texts: words of several scripts, numbers, line breaks and repeated characters.
#pragma once

#include <random>
#include <string>

namespace qkscope {

inline std::string sample_text(std::size_t bytes, unsigned seed) {
  static const char* const kPieces[] = {"the",      "House",
                                        "of",       "it's",
                                        "naïve",    "Привет",
                                        "мир",      "世界，",
                                        "你好。",   "안녕",
                                        "שלום",     "42",
                                        "2026",     "e\u0301",
                                        "...",      "!?",
                                        "\n",       "\n\n",
                                        "\r\n",     "  ",
                                        "\t",       "foo_bar(x)",
                                        "</s>",     "<s>",
                                        "👍🏽", "aaaaaaaaaaaaaaaaaaaa",
                                        "'LL",      "▁",
                                        "[INST]"};
  std::mt19937 random(seed);
  std::string text;
  while (text.size() < bytes) {
    text += kPieces[random() % std::size(kPieces)];
    if (random() % 5 != 0) text += ' ';
  }
  return text;
}

}  // namespace qkscope
