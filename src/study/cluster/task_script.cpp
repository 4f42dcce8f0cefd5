#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/core/text.h"
#include "study/cluster/slurm.h"

namespace qkscope {
namespace {

// Returns how many seconds before the time limit Slurm sends USR1: at most a quarter of the limit.
std::int64_t warning_seconds(const std::string& time) {
  constexpr std::int64_t kMost = 120;
  return time.empty() ? kMost : std::clamp<std::int64_t>(parse_time_limit(time) / 4, 1, kMost);
}

// The #SBATCH lines. Paths are quoted, because they may contain spaces.
std::string directives(const TaskScript& task, const SlurmOptions& options) {
  std::string lines;
  const auto add = [&](const std::string& option) { lines += "#SBATCH " + option + "\n"; };
  add("--job-name=" + task.job);
  add(fmt::format("--chdir=\"{}\"", task.folder));
  add(fmt::format("--output=\"{}\"", task.log));
  add("--open-mode=append");
  if (task.tasks > 1)
    add(fmt::format("--array=0-{}{}", task.tasks - 1,
                    options.array_limit > 0 ? fmt::format("%{}", options.array_limit) : ""));
  if (!options.partition.empty()) add("--partition=" + options.partition);
  if (!options.account.empty()) add("--account=" + options.account);
  if (task.runs_model && !options.gpus.empty()) add("--gpus=" + options.gpus);
  if (options.cpus > 0) add(fmt::format("--cpus-per-task={}", options.cpus));
  if (!options.memory.empty()) add("--mem=" + options.memory);
  if (!options.time.empty()) add("--time=" + options.time);
  add("--requeue");
  add(fmt::format("--signal=B:USR1@{}", warning_seconds(options.time)));
  return lines;
}

// Slurm sends USR1 only to the script. When it ends a job, it sends TERM to every process of the
// job. The script forwards the first of these signals as one USR1, because qkscope shuts down
// cleanly at the first USR1 and is killed by the second.
constexpr char kBody[] = R"(
program=
told=
passed_on=
interrupted=
pass_on() {{
  if [ -z "$program" ] || [ -n "$passed_on" ]; then return; fi
  passed_on=yes
  kill -USR1 "$program" 2>/dev/null
}}
tell() {{
  interrupted=yes
  told=${{told:-$1}}
  pass_on
}}
trap 'tell limit' USR1
trap 'tell end' TERM

{command} &
program=$!
[ -z "$told" ] || pass_on
status=
while true; do
  interrupted=
  wait "$program" 2>/dev/null
  now=$?
  if [ "$now" -ne 127 ] || [ -z "$status" ]; then status=$now; fi
  [ -n "$interrupted" ] || break
done

# A task continues where it was. Slurm requeues by itself what it ended (told=end) and means to run again.
again=no
case "$status" in
  {never}) ;;
  *) [ "$told" = end ] || again=yes ;;
esac
restarts=${{SLURM_RESTART_COUNT:-0}}
if [ "$again" = yes ] && [ "$restarts" -lt {retries} ]; then
  echo "qkscope: ended with status $status; requeued, $((restarts + 1)) of {retries}"
  scontrol requeue "$SLURM_JOB_ID" || echo "qkscope: error: it could not be requeued"
elif [ "$again" = yes ]; then
  echo "qkscope: error: ended with status $status after $restarts of {retries} retries"
fi
exit "$status"
)";

}  // namespace

std::string quote_for_shell(const std::string& text) {
  constexpr auto plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-/=:,@%";
  if (!text.empty() && text.find_first_not_of(plain) == std::string::npos) return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? "'\\''" : std::string(1, c);
  return word + "'";
}

std::int64_t parse_time_limit(const std::string& time) {
  const auto dash = time.find('-');
  const bool days = dash != std::string::npos;
  const auto parts = split(days ? time.substr(dash + 1) : time, ':');
  std::vector<std::int64_t> numbers;
  for (const auto& part : parts) numbers.push_back(parse_integer(part, "--time"));
  // With days the parts are hours:minutes:seconds. Without days, one part is minutes and two parts
  // are minutes:seconds.
  if (!days && numbers.size() < 3) numbers.insert(numbers.begin(), 0);
  numbers.resize(3, 0);
  const auto whole = days ? parse_integer(time.substr(0, dash), "--time") : 0;
  return ((whole * 24 + numbers[0]) * 60 + numbers[1]) * 60 + numbers[2];
}

std::string render_batch_script(const TaskScript& task, const SlurmOptions& options) {
  auto words = task.command;
  std::ranges::transform(words, words.begin(), quote_for_shell);
  if (task.tasks > 1)
    words.push_back(fmt::format("--shard \"$SLURM_ARRAY_TASK_ID/{}\"", task.tasks));
  std::string script = "#!/bin/bash\n" + directives(task, options) + "\n# " + task.what + "\n";
  if (!options.environment.empty())
    script += fmt::format("\n{}\n", fmt::join(options.environment, "\n"));
  return script + fmt::format(kBody, fmt::arg("command", fmt::join(words, " ")),
                              fmt::arg("never", task.retries_failures ? "0 | 2" : "0 | 1 | 2"),
                              fmt::arg("retries", options.retries));
}

}  // namespace qkscope
