// Which head a file holds, and the folder name that says so: l03h12q.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <tuple>

namespace qkscope {

enum class HeadKind : char { query = 'q', key = 'k' };

struct HeadId {
  int layer = 0;
  int head = 0;
  HeadKind kind = HeadKind::query;

  bool operator==(const HeadId& other) const { return key() == other.key(); }
  bool operator<(const HeadId& other) const { return key() < other.key(); }

 private:
  std::tuple<int, int, HeadKind> key() const { return {layer, head, kind}; }
};

// "l03h12q"; two digits, three from 100 on.
std::string folder_name(const HeadId& id);
std::optional<HeadId> parse_folder_name(std::string_view name);

// DATA_ROOT/l03h12q/data.parquet
std::string head_file_path(const std::string& data_root, const HeadId& id);

}  // namespace qkscope
