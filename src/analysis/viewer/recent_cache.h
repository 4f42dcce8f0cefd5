// A small cache with least-recently-used (LRU) eviction.
#pragma once

#include <algorithm>
#include <cstddef>
#include <list>
#include <utility>

namespace qkscope {

template <typename Key, typename Value>
class RecentCache {
 public:
  // Returns the value and marks it as used; null if it is not in the cache.
  Value* find(const Key& key) {
    const auto found = std::ranges::find(entries_, key, &Entry::first);
    if (found == entries_.end()) return nullptr;
    entries_.splice(entries_.end(), entries_, found);
    return &entries_.back().second;
  }
  // Evicts the least recently used values until fewer than `most` remain.
  void make_room(std::size_t most) {
    while (!entries_.empty() && entries_.size() >= most) entries_.pop_front();
  }
  Value& add(const Key& key, Value value) {
    return entries_.emplace_back(key, std::move(value)).second;
  }

 private:
  using Entry = std::pair<Key, Value>;
  std::list<Entry> entries_;  // the least recently used first
};

}  // namespace qkscope
