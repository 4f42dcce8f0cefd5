#include "study/sweep/checkpoint_branches.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include <fmt/ranges.h>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/folder.h"
#include "base/io/json.h"
#include "base/io/output_file.h"
#include "study/sweep/sweep_config.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

bool is_digit_at(std::string_view text, std::size_t i) {
  return i < text.size() && text[i] >= '0' && text[i] <= '9';
}

bool is_separator(char c) {
  return c == '-' || c == '_' || c == '/' || c == '.';
}

// Returns the number after a word like "step", optionally behind a separator, or -1.
std::int64_t step_behind(std::string_view name, std::size_t end_of_word) {
  auto at = end_of_word;
  if (at < name.size() && is_separator(name[at])) ++at;
  if (!is_digit_at(name, at)) return -1;
  std::int64_t step = -1;
  const auto parsed = std::from_chars(name.data() + at, name.data() + name.size(), step);
  return parsed.ec == std::errc() ? step : -1;
}

// Order of training phases: pre-training, context extension, post-training.
int rank_of(const std::string& phase) {
  const auto name = ascii_lower(phase);
  for (const char* first : {"stage", "pre"})
    if (name.starts_with(first)) return 0;
  for (const char* last : {"it-", "it_", "mid", "sft", "dpo", "apo", "rl", "instruct", "post"})
    if (name.starts_with(last)) return 2;
  return name.empty() ? 0 : 1;
}

bool comes_before(const CheckpointBranch& a, const CheckpointBranch& b) {
  if (a.step.has_value() != b.step.has_value()) return a.step.has_value();
  if (rank_of(a.phase) != rank_of(b.phase)) return rank_of(a.phase) < rank_of(b.phase);
  if (a.phase != b.phase) return natural_less(a.phase, b.phase);
  if (a.step != b.step) return a.step < b.step;
  return natural_less(a.branch, b.branch);
}

// Replaces characters that are unsafe in a folder name.
std::string safe_label(std::string text) {
  for (char& c : text)
    if (!is_digit_at({&c, 1}, 0) && !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') &&
        !is_separator(c) && c != '+')
      c = '-';
  std::replace(text.begin(), text.end(), '/', '-');
  while (!text.empty() && (text.front() == '-' || text.front() == '.')) text.erase(0, 1);
  constexpr std::size_t kLongest = 80;
  text.resize(std::min(text.size(), kLongest));
  return text.empty() ? "run" : text;
}

bool is_long_context(const std::string& phase) {
  return ascii_lower(phase).starts_with("lc");
}

// Abbreviates a phase: "stage1" becomes S1, long-context phases become LC1, LC2, ...
std::string short_phase(const std::string& phase, const std::map<std::string, int>& long_contexts) {
  constexpr std::string_view kStage = "stage";
  if (ascii_lower(phase).starts_with(kStage) && is_digit_at(phase, kStage.size()))
    return "S" + phase.substr(kStage.size());
  if (const auto found = long_contexts.find(phase); found != long_contexts.end())
    return fmt::format("LC{}", found->second);
  return phase;
}

// `branches` must be sorted. Phases are numbered over all branches, so selecting a subset does not
// renumber them.
void give_labels(std::vector<CheckpointBranch>& branches) {
  std::map<std::string, int> long_contexts;
  for (const auto& branch : branches)
    if (branch.step && is_long_context(branch.phase))
      long_contexts.emplace(branch.phase, std::ssize(long_contexts) + 1);
  std::map<std::string, int> uses;
  for (auto& branch : branches) {
    const auto phase = short_phase(branch.phase, long_contexts);
    branch.label = branch.branch;
    if (branch.step) branch.label = (phase.empty() ? "" : phase + "-") + short_step(*branch.step);
    branch.label = safe_label(branch.label);
    ++uses[branch.label];
  }
  std::set<std::string> taken;
  for (auto& branch : branches) {
    if (uses[branch.label] > 1) branch.label = safe_label(branch.branch);
    const auto label = branch.label;
    for (int i = 2; !taken.insert(branch.label).second; ++i)
      branch.label = fmt::format("{}-{}", label, i);
  }
}

bool matches(const CheckpointBranch& branch, const std::vector<std::string>& patterns) {
  if (patterns.empty()) return branch.step.has_value();
  return std::ranges::any_of(
      patterns, [&](const std::string& pattern) { return glob_match(pattern, branch.branch); });
}

using Branches = std::vector<CheckpointBranch>;

Branches every_nth(const Branches& all, std::int64_t n) {
  Branches some;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (i % static_cast<std::size_t>(n) == 0 || i + 1 == all.size()) some.push_back(all[i]);
  return some;
}

double log_step(const CheckpointBranch& branch) {
  return std::log(static_cast<double>(std::max<std::int64_t>(1, branch.step.value_or(1))));
}

// Appends at most n branches of one phase, evenly in log(step), including the first and the last.
void add_evenly_in_log(const Branches& phase, std::int64_t n, Branches& some) {
  const auto count = std::min<std::int64_t>(n, std::ssize(phase));
  std::set<std::size_t> chosen;
  const double first = log_step(phase.front());
  const double last = log_step(phase.back());
  for (std::int64_t i = 0; i < count; ++i) {
    const double share = count == 1 ? 1.0 : static_cast<double>(i) / static_cast<double>(count - 1);
    const double wanted = std::lerp(first, last, share);
    std::optional<std::size_t> nearest;
    for (std::size_t at = 0; at < phase.size(); ++at)
      if (!chosen.contains(at) && (!nearest || std::fabs(log_step(phase[at]) - wanted) <
                                                   std::fabs(log_step(phase[*nearest]) - wanted)))
        nearest = at;
    chosen.insert(*nearest);
  }
  for (const auto at : chosen) some.push_back(phase[at]);
}

Branches evenly_in_log(const Branches& all, std::int64_t n) {
  Branches some;
  for (auto begin = all.begin(); begin != all.end();) {
    // Branches without a step come last and form a separate group.
    const auto end = std::find_if(begin, all.end(), [&](const CheckpointBranch& branch) {
      return branch.phase != begin->phase || branch.step.has_value() != begin->step.has_value();
    });
    add_evenly_in_log({begin, end}, n, some);
    begin = end;
  }
  return some;
}

// Returns a YAML scalar: plain if YAML reads it back as the same string, else JSON-quoted.
std::string yaml_word(const std::string& text) {
  constexpr auto kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+/-";
  const bool letter =
      !text.empty() && ((text[0] >= 'a' && text[0] <= 'z') || (text[0] >= 'A' && text[0] <= 'Z'));
  const auto word = ascii_lower(text);
  const bool special = word == "null" || word == "true" || word == "false" || word == "yes" ||
                       word == "no" || word == "on" || word == "off" || word == "y" || word == "n";
  if (letter && !special && text.find_first_not_of(kPlain) == std::string::npos) return text;
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string sweep_text(const BranchSweep& sweep, const std::string& name,
                       const std::string& config) {
  auto text = fmt::format(
      "# Checkpoints of {}, written by 'qkscope hub branches'. docs/how-to/sweep.md describes the "
      "file; where "
      "a\n"
      "# phase has another context, add tokenizer.max_length and capture.min_bucket_size to its\n"
      "# overrides.\nname: {}\nbase: {}\nruns:\n",
      printable(sweep.repository), yaml_word(name), yaml_word(config));
  for (const auto& branch : sweep.branches) {
    text += fmt::format("  - {{label: {}, ", yaml_word(branch.label));
    if (!branch.phase.empty()) text += fmt::format("phase: {}, ", yaml_word(branch.phase));
    text += fmt::format("overrides: {{model.name: {}, model.revision: {}}}}}\n",
                        yaml_word(sweep.repository), yaml_word(branch.branch));
  }
  return text;
}

}  // namespace

CheckpointBranch parse_branch(const std::string& name) {
  const auto text = ascii_lower(name);
  CheckpointBranch branch{.branch = name, .phase = "", .step = {}, .label = ""};
  std::size_t found = std::string::npos;
  for (const std::string word : {"step", "checkpoint", "ckpt", "iter", "steps"}) {
    for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
      const auto step = step_behind(text, at + word.size());
      if (step < 0 || (found != std::string::npos && at < found)) continue;
      found = at;
      branch.step = step;
    }
    if (branch.step) break;
  }
  if (!branch.step) return branch;
  branch.phase = name.substr(0, found);
  constexpr std::string_view kGlobal = "global";  // prefix in "global_step1000"
  if (ascii_lower(branch.phase).ends_with("global_"))
    branch.phase.resize(branch.phase.size() - kGlobal.size() - 1);
  while (!branch.phase.empty() && is_separator(branch.phase.back())) branch.phase.pop_back();
  return branch;
}

bool natural_less(const std::string& a, const std::string& b) {
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (is_digit_at(a, i) && is_digit_at(b, j)) {
      const auto number = [](const std::string& text, std::size_t& at) {
        while (at < text.size() && text[at] == '0') ++at;
        const auto begin = at;
        while (is_digit_at(text, at)) ++at;
        return std::string_view(text).substr(begin, at - begin);
      };
      const auto first = number(a, i);
      const auto second = number(b, j);
      if (first.size() != second.size()) return first.size() < second.size();
      if (first != second) return first < second;
      continue;
    }
    if (a[i] != b[j]) return a[i] < b[j];
    ++i;
    ++j;
  }
  if ((i < a.size()) != (j < b.size())) return j < b.size();
  return a < b;  // equal except for leading zeros
}

std::string short_step(std::int64_t step) {
  constexpr std::int64_t kThousand = 1'000;
  constexpr std::int64_t kMillion = 1'000'000;
  if (step >= kMillion && step % (kMillion / 100) == 0)
    return fmt::format("{}M", static_cast<double>(step) / static_cast<double>(kMillion));
  if (step >= kThousand && step % (kThousand / 10) == 0)
    return fmt::format("{}K", static_cast<double>(step) / static_cast<double>(kThousand));
  return fmt::format("{}", step);
}

std::vector<CheckpointBranch> checkpoint_branches(const std::vector<std::string>& names,
                                                  const BranchChoice& choice) {
  return translate_exceptions([&] {
    if (choice.every < 1)
      bad_input("every n-th branch: found {}, expected 1 or more", choice.every);
    if (choice.log < 0) bad_input("branches of a phase: found {}, expected 1 or more", choice.log);
    if (choice.every > 1 && choice.log > 0)
      bad_input("every n-th and evenly in the logarithm exclude each other");
    Branches all;
    for (const auto& name : names) all.push_back(parse_branch(name));
    std::ranges::sort(all, comes_before);
    give_labels(all);
    std::erase_if(all,
                  [&](const CheckpointBranch& branch) { return !matches(branch, choice.match); });
    return choice.log > 0 ? evenly_in_log(all, choice.log) : every_nth(all, choice.every);
  });
}

void write_branch_sweep(const BranchSweep& sweep, const std::string& file) {
  translate_exceptions([&] {
    if (sweep.branches.empty()) bad_input("{}: there are no branches to write into it", file);
    if (!path_exists(sweep.config)) bad_input("{}: no such capture configuration", sweep.config);
    const auto beside = fs::absolute(file).lexically_normal().parent_path();
    const auto config = fs::absolute(sweep.config).lexically_normal();
    const auto relative = config.lexically_relative(beside);
    const auto name = safe_label(fs::path(file).stem().string());
    const auto text = sweep_text(sweep, name, (relative.empty() ? config : relative).string());
    make_folders(beside.string());
    const auto draft = file + ".draft.yaml";
    write_file(draft, text);
    try {
      read_sweep({.file = draft, .overrides = {}, .data_folder = ""});  // validates the draft
    } catch (...) {
      fs::remove(draft);
      throw;
    }
    fs::rename(draft, file);
  });
}

}  // namespace qkscope
