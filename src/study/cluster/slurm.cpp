#include "study/cluster/slurm.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/child_process.h"

namespace qkscope {
namespace {

constexpr std::size_t kIdsPerCommand = 100;

// Error texts of an unreachable controller, as opposed to a rejected request.
constexpr std::string_view kUnreachable[] = {"Unable to contact", "timed out",     "Zero Bytes",
                                             "Connection",        "Communication", "authentication",
                                             "temporarily",       "Munge"};

ChildResult run_slurm(const std::vector<std::string>& command) {
  auto output = run_child(command);
  if (!output.found)
    bad_input(
        "'{}' is not on the PATH: expected a machine of a cluster that runs Slurm; --dry-run shows "
        "plan and scripts without it",
        command.front());
  return output;
}

std::string without_space(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1));
}

// Returns the last error line without the program's name, for example "Batch job submission failed:
// Invalid partition".
std::string last_complaint(const std::string& err) {
  constexpr std::string_view kMark = "error: ";
  std::string last = "it did not say why";
  for (const auto& line : split(err, '\n')) {
    const auto at = line.find(kMark);
    const auto text =
        without_space(at == std::string::npos ? line : line.substr(at + kMark.size()));
    if (!text.empty()) last = text;
  }
  return last;
}

using Words = std::vector<std::string>;

// Runs the command for all ids, at most kIdsPerCommand at a time.
void for_all(const Words& ids, const std::function<Words(const Words&)>& command,
             const std::string& what) {
  for (std::size_t begin = 0; begin < ids.size(); begin += kIdsPerCommand) {
    const auto end = std::min(ids.size(), begin + kIdsPerCommand);
    const auto output = run_slurm(command(Words(ids.begin() + static_cast<std::ptrdiff_t>(begin),
                                                ids.begin() + static_cast<std::ptrdiff_t>(end))));
    if (output.status != 0) throw slurm_error(what, output.err);
  }
}

}  // namespace

Error slurm_error(const std::string& what, const std::string& err) {
  const bool unreachable = std::ranges::any_of(
      kUnreachable, [&](std::string_view text) { return err.find(text) != std::string::npos; });
  return {unreachable ? ErrorKind::failure : ErrorKind::bad_input,
          fmt::format("{}: {}", what, last_complaint(err))};
}

std::string submit_script(const std::string& file, const std::vector<std::string>& after,
                          bool held) {
  std::vector<std::string> command = {"sbatch", "--parsable"};
  if (held) command.emplace_back("--hold");
  if (!after.empty())
    command.push_back(fmt::format("--dependency=afterany:{}", fmt::join(after, ":")));
  command.push_back(file);
  const auto output = run_slurm(command);
  if (output.status != 0) throw slurm_error("sbatch refused " + file, output.err);
  const auto id =
      without_space(split(output.out, ';').front());  // federated clusters append ";CLUSTER"
  if (id.empty() || id.find_first_not_of("0123456789") != std::string::npos)
    failure("sbatch {}: found {}, expected the id of a job", file, in_quotes(output.out));
  return id;
}

void release_jobs(const std::vector<std::string>& ids) {
  const auto command = [](const Words& some) {
    return Words{"scontrol", "release", fmt::format("{}", fmt::join(some, ","))};
  };
  for_all(ids, command, "the jobs cannot be released");
}

void cancel_jobs(const std::vector<std::string>& ids) {
  const auto command = [](const Words& some) {
    Words words = {"scancel", "--quiet"};
    words.insert(words.end(), some.begin(), some.end());
    return words;
  };
  for_all(ids, command, "the jobs cannot be cancelled");
}

std::vector<QueuedTask> queued_tasks(const std::vector<std::string>& jobs) {
  // Query all jobs of the user: squeue fails for the id of a job that ended long ago.
  const auto output = run_slurm({"squeue", "--noheader", "--array",
                                 fmt::format("--user={}", ::getuid()), "--format=%F|%K|%T|%r"});
  if (output.status != 0) throw slurm_error("squeue", output.err);
  const std::set<std::string> wanted(jobs.begin(), jobs.end());
  std::vector<QueuedTask> tasks;
  for (const auto& line : split(output.out, '\n')) {
    const auto fields = split(line, '|');
    if (fields.size() < 4 || !wanted.contains(without_space(fields[0]))) continue;
    const auto index = without_space(fields[1]);
    const bool numbered =
        !index.empty() && index.find_first_not_of("0123456789") == std::string::npos;
    auto reason = without_space(fields[3]);
    if (reason == "None") reason = "";
    tasks.push_back({.job = without_space(fields[0]),
                     .index = numbered ? parse_integer(index, "squeue") : 0,
                     .state = without_space(fields[2]),
                     .reason = std::move(reason)});
  }
  return tasks;
}

}  // namespace qkscope
