#include "analysis/methods/text_groups.h"

#include <algorithm>

namespace qkscope {

TextGroups::TextGroups(const RowsView& queries, const RowsView& keys) {
  std::vector<std::int64_t> texts;
  for (const RowsView* rows : {&queries, &keys})
    for (std::size_t i = 0; i < rows->position.size(); ++i) texts.push_back(rows->example(i));
  *this = from_texts(std::move(texts));
}

TextGroups TextGroups::from_texts(std::vector<std::int64_t> texts) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  const auto count = texts.size();
  const auto groups = std::min<std::size_t>(kMost, count);
  std::vector<std::int64_t> first;
  // Text i of n is in group floor(i G / n) of G, so group g begins with text ceil(g n / G).
  for (std::size_t g = 0; g < groups; ++g)
    first.push_back(texts[(g * count + groups - 1) / groups]);
  return TextGroups(std::move(first));
}

int TextGroups::group_of(std::int64_t example) const {
  const auto after = std::upper_bound(first_.begin(), first_.end(), example);
  return std::max(0, static_cast<int>(after - first_.begin()) - 1);
}

}  // namespace qkscope
