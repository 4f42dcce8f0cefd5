#include <algorithm>
#include <limits>
#include <string_view>

#include "base/core/error.h"
#include "base/core/text.h"
#include "study/cluster/slurm.h"

namespace qkscope {
namespace {

constexpr std::string_view kDigits = "0123456789";
constexpr std::string_view kName =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-";

bool made_of(std::string_view text, std::string_view characters) {
  return !text.empty() && text.find_first_not_of(characters) == std::string_view::npos;
}

// A name that is safe on an #SBATCH line.
bool is_name(std::string_view text) {
  return made_of(text, kName) && text.front() != '-';
}

// Slurm accepts a comma-separated list and uses the first partition with free nodes.
bool is_partition(std::string_view text) {
  const auto names = split(text, ',');
  return std::ranges::all_of(names, is_name);
}

// NUMBER or TYPE:NUMBER, for example "2" or "h100:2".
bool is_gpus(std::string_view text) {
  const auto colon = text.rfind(':');
  const bool typed = colon != std::string_view::npos;
  return (!typed || is_name(text.substr(0, colon))) &&
         made_of(typed ? text.substr(colon + 1) : text, kDigits);
}

// Slurm time limits: "90", "90:00", "1:30:00", "1-12", "1-12:30:00".
bool is_time(std::string_view text) {
  const auto dash = text.find('-');
  const bool days = dash != std::string_view::npos;
  const auto parts = split(days ? text.substr(dash + 1) : text, ':');
  const auto is_number = [](std::string_view part) {
    return made_of(part, kDigits) && part.size() <= 6;
  };
  return (!days || is_number(text.substr(0, dash))) && parts.size() <= 3 &&
         std::ranges::all_of(parts, is_number) &&
         text.find_first_of("123456789") != std::string_view::npos;
}

// Memory size with an optional unit, for example "64G".
bool is_memory(std::string_view text) {
  if (!text.empty() && std::string_view("KMGT").find(text.back()) != std::string_view::npos)
    text.remove_suffix(1);
  return made_of(text, kDigits);
}

bool is_line(std::string_view text) {
  return text.find_first_of(std::string_view("\n\r\0", 3)) == std::string_view::npos;
}

struct SlurmText {
  const char* key;
  std::string SlurmOptions::*value;
  bool (*valid)(std::string_view);
  const char* expected;
};
constexpr SlurmText kSlurmTexts[] = {
    {"partition", &SlurmOptions::partition, is_partition, "the name of a partition"},
    {"account", &SlurmOptions::account, is_name, "the name of an account"},
    {"gpus", &SlurmOptions::gpus, is_gpus, "a number of GPUs, or TYPE:NUMBER as in h100:1"},
    {"time", &SlurmOptions::time, is_time, "minutes, HH:MM:SS or DAYS-HH:MM:SS"},
    {"memory", &SlurmOptions::memory, is_memory, "a size with K, M, G or T as in 64G"}};

struct SlurmNumber {
  const char* key;
  std::int64_t SlurmOptions::*value;
  std::int64_t least;
  std::int64_t most;
};
constexpr std::int64_t kMostTasks = 10'000;
constexpr SlurmNumber kSlurmNumbers[] = {{"shards", &SlurmOptions::shards, 1, kMostTasks},
                                         {"array_limit", &SlurmOptions::array_limit, 0, kMostTasks},
                                         {"cpus", &SlurmOptions::cpus, 0, 4096},
                                         {"retries", &SlurmOptions::retries, 0, 1000}};

constexpr char kLine[] = "one line of shell";

// Command-line name of a YAML key: "array_limit" becomes "--array-limit".
std::string option_name(std::string key) {
  std::replace(key.begin(), key.end(), '_', '-');
  return "--" + key;
}

}  // namespace

SlurmOptions read_slurm(YamlSection section) {
  SlurmOptions options;
  for (const auto& number : kSlurmNumbers) {
    const auto found = section.integer(number.key, number.least);
    if (found && *found > number.most)
      section.expected(number.key, fmt::format("at most {}", number.most));
    if (found) options.*number.value = *found;
  }
  for (const auto& text : kSlurmTexts) {
    const auto found = section.text(text.key);
    if (found && !text.valid(*found)) section.expected(text.key, text.expected);
    if (found) options.*text.value = *found;
  }
  const auto lines = section.node("environment");
  if (!lines.IsNull() && !lines.IsSequence())
    section.expected("environment", "a list of lines of shell");
  for (const auto& line : lines) {
    if (!line.IsScalar() || !is_line(line.Scalar())) section.expected("environment", kLine);
    options.environment.push_back(line.Scalar());
  }
  section.finish();
  return options;
}

void check_slurm(const SlurmOptions& options) {
  for (const auto& number : kSlurmNumbers)
    if (const auto found = options.*number.value; found < number.least || found > number.most)
      bad_input("{}: found {}, expected {} to {}", option_name(number.key), found, number.least,
                number.most);
  for (const auto& text : kSlurmTexts)
    if (const auto& found = options.*text.value; !found.empty() && !text.valid(found))
      bad_input("{}: found {}, expected {}", option_name(text.key), in_quotes(found),
                text.expected);
  for (const auto& line : options.environment)
    if (!is_line(line)) bad_input("--environment: found {}, expected {}", in_quotes(line), kLine);
}

}  // namespace qkscope
