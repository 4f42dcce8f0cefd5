#include "study/cluster/task_log.h"

#include <algorithm>
#include <fstream>

#include "base/core/text.h"

namespace qkscope {
namespace {

constexpr std::size_t kTail = 64 << 10;  // bytes
constexpr std::string_view kMarks[] = {"error:", "CANCELLED", "oom-kill", "Killed", "requeued, "};

// What Slurm says when a script has requeued itself; the script has said why.
constexpr std::string_view kRequeued = "DUE TO JOB REQUEUE";

bool tells(std::string_view line) {
  if (line.find(kRequeued) != std::string_view::npos) return false;
  return std::any_of(std::begin(kMarks), std::end(kMarks), [&](std::string_view mark) {
    return line.find(mark) != std::string_view::npos;
  });
}

}  // namespace

std::string telling_line(std::string_view text) {
  std::string last;
  std::string telling;
  for (const auto& line : split(text, '\n')) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    last = line;
    if (tells(line)) telling = line;
  }
  return printable(telling.empty() ? last : telling);
}

std::string telling_line_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  if (!in) return "";
  const auto size = static_cast<std::size_t>(in.tellg());
  std::string text(std::min(size, kTail), '\0');
  in.seekg(static_cast<std::streamoff>(size - text.size()));
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  return telling_line(text);
}

}  // namespace qkscope
