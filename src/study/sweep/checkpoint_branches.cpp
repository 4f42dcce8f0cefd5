#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "base/core/numbers.h"
#include "base/core/project.h"
#include "base/core/text.h"
#include "base/io/folder.h"
#include "base/io/json.h"
#include "study/sweep/sweep.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

bool is_digit_at(std::string_view text, std::size_t i) {
  return i < text.size() && text[i] >= '0' && text[i] <= '9';
}

bool is_separator(char c) {
  return c == '-' || c == '_' || c == '/' || c == '.';
}

// Returns the number after a word such as "step" and an optional separator; -1 without a number.
std::int64_t parse_step_after_word(std::string_view name, std::size_t end_of_word) {
  auto at = end_of_word;
  if (at < name.size() && is_separator(name[at])) ++at;
  if (!is_digit_at(name, at)) return -1;
  std::int64_t step = -1;
  const auto parsed = std::from_chars(name.data() + at, name.data() + name.size(), step);
  return parsed.ec == std::errc() ? step : -1;
}

// Order of training phases: pre-training, context extension, post-training.
int training_phase_order(const std::string& phase) {
  const auto name = ascii_lower(phase);
  for (const char* first : {"stage", "pre"})
    if (name.starts_with(first)) return 0;
  for (const char* last : {"it-", "it_", "mid", "sft", "dpo", "apo", "rl", "instruct", "post"})
    if (name.starts_with(last)) return 2;
  return name.empty() ? 0 : 1;
}

bool is_earlier_in_training(const CheckpointBranch& a, const CheckpointBranch& b) {
  if (a.step.has_value() != b.step.has_value()) return a.step.has_value();
  if (training_phase_order(a.phase) != training_phase_order(b.phase))
    return training_phase_order(a.phase) < training_phase_order(b.phase);
  if (a.phase != b.phase) return less_in_natural_order(a.phase, b.phase);
  if (a.step != b.step) return a.step < b.step;
  return less_in_natural_order(a.branch, b.branch);
}

// Replaces characters that are unsafe in a folder name.
std::string make_folder_name_safe(std::string text) {
  constexpr auto kSafe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-";
  for (auto at = text.find_first_not_of(kSafe); at != std::string::npos;
       at = text.find_first_not_of(kSafe, at))
    text[at] = '-';
  while (!text.empty() && (text.front() == '-' || text.front() == '.')) text.erase(0, 1);
  constexpr std::size_t kLongest = 80;
  text.resize(std::min(text.size(), kLongest));
  return text.empty() ? "run" : text;
}

// `branches`: all checkpoint branches of the repository, sorted. Long-context phases are numbered
// over all of them (LC1, LC2, ...), so that a sweep over some branches has the same labels.
void assign_branch_labels(std::vector<CheckpointBranch>& branches) {
  std::map<std::string, int> long_contexts;
  for (const auto& branch : branches)
    if (branch.step && ascii_lower(branch.phase).starts_with("lc"))
      long_contexts.emplace(branch.phase, std::ssize(long_contexts) + 1);
  std::map<std::string, int> uses;
  for (auto& branch : branches) {
    // Abbreviates a phase: "stage1" becomes S1, long-context phases become LC1, LC2, ...
    constexpr std::string_view kStage = "stage";
    auto phase = branch.phase;
    if (ascii_lower(phase).starts_with(kStage) && is_digit_at(phase, kStage.size()))
      phase = "S" + phase.substr(kStage.size());
    else if (const auto found = long_contexts.find(phase); found != long_contexts.end())
      phase = fmt::format("LC{}", found->second);
    branch.label = branch.branch;
    if (branch.step)
      branch.label = (phase.empty() ? "" : phase + "-") + abbreviate_step(*branch.step);
    branch.label = make_folder_name_safe(branch.label);
    ++uses[branch.label];
  }
  std::set<std::string> taken;
  for (auto& branch : branches) {
    if (uses[branch.label] > 1) branch.label = make_folder_name_safe(branch.branch);
    const auto label = branch.label;
    for (int i = 2; !taken.insert(branch.label).second; ++i)
      branch.label = fmt::format("{}-{}", label, i);
  }
}

using Branches = std::vector<CheckpointBranch>;

double log_of_step(const CheckpointBranch& branch) {
  return std::log(static_cast<double>(std::max<std::int64_t>(1, branch.step.value_or(1))));
}

// Appends up to n branches of one phase, evenly spaced in log(step) from the first to the last.
void append_log_spaced_branches(const Branches& phase, std::int64_t n, Branches& some) {
  const auto count = std::min<std::int64_t>(n, std::ssize(phase));
  const double first = log_of_step(phase.front());
  const double last = log_of_step(phase.back());
  std::set<std::size_t> chosen;
  for (std::int64_t i = 0; i < count; ++i) {
    const double share = count == 1 ? 1.0 : static_cast<double>(i) / static_cast<double>(count - 1);
    const double wanted = std::lerp(first, last, share);
    const auto distance = [&](std::size_t k) { return std::fabs(log_of_step(phase[k]) - wanted); };
    std::size_t nearest = 0;
    while (chosen.contains(nearest)) ++nearest;
    for (std::size_t at = nearest + 1; at < phase.size(); ++at)
      if (!chosen.contains(at) && distance(at) < distance(nearest)) nearest = at;
    chosen.insert(nearest);
  }
  for (const auto at : chosen) some.push_back(phase[at]);
}

Branches select_log_spaced_branches(const Branches& all, std::int64_t n) {
  Branches some;
  for (auto begin = all.begin(); begin != all.end();) {
    // Branches without a training step are sorted last and form a group of their own.
    const auto end = std::find_if(begin, all.end(), [&](const CheckpointBranch& branch) {
      return branch.phase != begin->phase || branch.step.has_value() != begin->step.has_value();
    });
    append_log_spaced_branches({begin, end}, n, some);
    begin = end;
  }
  return some;
}

// Returns a YAML scalar: plain if YAML reads it back as the same string, else JSON-quoted.
std::string yaml_scalar(const std::string& text) {
  static const std::set<std::string> kSpecial = {"null", "true", "false", "yes", "no",
                                                 "on",   "off",  "y",     "n",   ""};
  constexpr auto kPlain = "abcdefghijklmnopqrstuvwxyz0123456789._+/-";
  const auto word = ascii_lower(text);
  const bool letter = word[0] >= 'a' && word[0] <= 'z';
  if (letter && !kSpecial.contains(word) && word.find_first_not_of(kPlain) == std::string::npos)
    return text;
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string render_sweep_file(const BranchSweep& sweep, const std::string& name,
                              const std::string& config) {
  auto text = fmt::format(
      "# Checkpoints of {}, written by 'qkscope hub branches'. docs/how-to/sweep.md describes the "
      "file; where a\n"
      "# phase has another context, add tokenizer.max_length and capture.min_bucket_size to its\n"
      "# overrides.\nname: {}\nbase: {}\nruns:\n",
      printable(sweep.repository), yaml_scalar(name), yaml_scalar(config));
  for (const auto& branch : sweep.branches) {
    text += fmt::format("  - {{label: {}, ", yaml_scalar(branch.label));
    if (!branch.phase.empty()) text += fmt::format("phase: {}, ", yaml_scalar(branch.phase));
    text += fmt::format("overrides: {{model.name: {}, model.revision: {}}}}}\n",
                        yaml_scalar(sweep.repository), yaml_scalar(branch.branch));
  }
  return text;
}

}  // namespace

CheckpointBranch parse_branch_name(const std::string& name) {
  const auto text = ascii_lower(name);
  CheckpointBranch branch{.branch = name, .phase = "", .step = {}, .label = ""};
  std::size_t found = std::string::npos;
  for (const std::string word : {"step", "checkpoint", "ckpt", "iter", "steps"}) {
    for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
      const auto step = parse_step_after_word(text, at + word.size());
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

bool less_in_natural_order(const std::string& a, const std::string& b) {
  std::size_t i = 0, j = 0;
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

std::string abbreviate_step(std::int64_t step) {
  if (step >= 1'000'000 && step % 10'000 == 0)
    return fmt::format("{}M", static_cast<double>(step) / 1e6);
  if (step >= 1'000 && step % 100 == 0) return fmt::format("{}K", static_cast<double>(step) / 1e3);
  return fmt::format("{}", step);
}

std::vector<CheckpointBranch> checkpoint_branches(const std::vector<std::string>& names,
                                                  const BranchChoice& choice) {
  return translate_exceptions([&] {
    if (choice.every < 1) reject("every n-th branch: found {}, expected 1 or more", choice.every);
    if (choice.log < 0) reject("branches of a phase: found {}, expected 1 or more", choice.log);
    if (choice.every > 1 && choice.log > 0)
      reject("every n-th and evenly in the logarithm exclude each other");
    auto all = to_vector(names, parse_branch_name);
    std::ranges::sort(all, is_earlier_in_training);
    assign_branch_labels(all);
    std::erase_if(all, [&](const CheckpointBranch& branch) {
      if (choice.match.empty()) return !branch.step.has_value();
      return std::ranges::none_of(
          choice.match, [&](const std::string& glob) { return glob_match(glob, branch.branch); });
    });
    if (choice.log > 0) return select_log_spaced_branches(all, choice.log);
    Branches some;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (i % as_index(choice.every) == 0 || i + 1 == all.size()) some.push_back(all[i]);
    return some;
  });
}

void write_branch_sweep(const BranchSweep& sweep, const std::string& file) {
  translate_exceptions([&] {
    if (sweep.branches.empty()) reject("{}: there are no branches to write into it", file);
    if (!path_exists(sweep.config)) reject("{}: no such capture configuration", sweep.config);
    const auto beside = fs::absolute(file).lexically_normal().parent_path();
    const auto config = fs::absolute(sweep.config).lexically_normal();
    const auto relative = config.lexically_relative(beside);
    const auto name = make_folder_name_safe(fs::path(file).stem().string());
    const auto text =
        render_sweep_file(sweep, name, (relative.empty() ? config : relative).string());
    make_folders(beside.string());
    const auto draft = file + ".draft.yaml";
    write_file(draft, text);
    try {
      read_sweep_config({.file = draft, .overrides = {}, .data_folder = ""});  // throws if invalid
    } catch (...) {
      fs::remove(draft);
      throw;
    }
    fs::rename(draft, file);
  });
}

}  // namespace qkscope
