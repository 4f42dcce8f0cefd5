// qkscope gc: lists or removes objects left behind in an object store by interrupted writers.

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/error.h"
#include "cli/json.h"
#include "qkscope/experimental/store.h"
#include "qkscope/experimental/text.h"

namespace qkscope::cli {
namespace {

struct GcArguments {
  CommonOptions common;
  std::string address;
  std::string older_than = "1d";
  bool remove = false;
  bool json = false;
};

// Converts "90s", "30m", "12h" or "1d" to seconds.
double parse_age(const std::string& text) {
  constexpr std::string_view kUnits = "smhd";
  constexpr double kSeconds[] = {1.0, 60.0, 3600.0, 86400.0};
  const auto unit = text.empty() ? std::string_view::npos : kUnits.find(text.back());
  if (unit == std::string_view::npos)
    reject("--older-than {}: expected a number with s, m, h or d, as in 12h", text);
  const auto number = parse_integer(text.substr(0, text.size() - 1), "--older-than");
  if (number < 0) reject("--older-than {}: expected no negative age", text);
  return static_cast<double>(number) * kSeconds[unit];
}

std::uint64_t total_bytes(const std::vector<GarbageObject>& garbage) {
  std::uint64_t bytes = 0;
  for (const auto& object : garbage) bytes += object.bytes;
  return bytes;
}

void print_json(const GcArguments& options, const std::vector<GarbageObject>& garbage) {
  Json list = Json::array();
  for (const auto& object : garbage)
    list.push_back({{"object", object.address}, {"bytes", object.bytes}, {"age", object.age}});
  const Json json = {{"address", options.address},
                     {"removed", options.remove},
                     {"bytes", total_bytes(garbage)},
                     {"objects", list}};
  fmt::print("{}\n", dump_json(json, 2));
}

void print_text(const GcArguments& options, const std::vector<GarbageObject>& garbage) {
  for (const auto& object : garbage)
    fmt::print("{:>12}  {:>12}  {}\n", format_bytes(object.bytes), format_duration(object.age),
               printable(object.address));
  if (garbage.empty())
    fmt::print("{}: no garbage older than {}\n", options.address, options.older_than);
  else
    fmt::print("{} objects, {} {}\n", garbage.size(), format_bytes(total_bytes(garbage)),
               options.remove ? "removed" : "of garbage; --remove removes them");
}

void run(GcArguments& options) {
  const auto garbage = find_garbage(options.address, parse_age(options.older_than));
  if (options.remove) remove_garbage(options.address, garbage);
  if (options.json)
    print_json(options, garbage);
  else if (!options.common.quiet)
    print_text(options, garbage);
}

}  // namespace

void add_gc(CLI::App& app) {
  auto [command, options] = add_command<GcArguments>(
      app, "gc", "List or remove objects that killed writers left in an object store", run);
  command
      ->add_option("address", options->address,
                   "s3://bucket/path, gs://bucket/path or file:///path; everything below it")
      ->required();
  command
      ->add_option(
          "--older-than", options->older_than,
          "Only objects older than this (90s, 30m, 12h, 1d); choose more than any upload takes")
      ->capture_default_str();
  command->add_flag("--remove", options->remove, "Remove the objects");
  command->add_flag("--json", options->json, "Print one JSON object");
}

}  // namespace qkscope::cli
