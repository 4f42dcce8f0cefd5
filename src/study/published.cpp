#include "study/published.h"

#include <algorithm>

#include "core/error.h"
#include "core/text.h"

namespace qkscope {
namespace {

// "less than 1 %" was printed for the content-focused share at 1.2M steps: no number, left out.
const std::vector<PublishedRun> kSmolLm3 = {
    {"S1-40K",
     "stage1",
     {{"r_q", 0.67},
      {"r_k", 0.46},
      {"position_dominated", 0.34},
      {"content_focused", 0.11},
      {"mixed", 0.54},
      {"pc0_variance", 0.19},
      {"bias_strength", 0.0092},
      {"alpha_k", 3.19e-3},
      {"abs_r_k_a", 0.861},
      {"ap_overall", 0.585},
      {"ap_first20", 0.609},
      {"ap_drop", 0.040}}},
    {"S1-1.2M",
     "stage1",
     {{"r_q", 0.81},
      {"r_k", 0.53},
      {"position_dominated", 0.55},
      {"mixed", 0.38},
      {"pc0_variance", 0.29},
      {"bias_strength", 0.0160},
      {"alpha_k", 3.23e-3},
      {"abs_r_k_a", 0.886},
      {"ap_overall", 0.542},
      {"ap_first20", 0.579},
      {"ap_drop", 0.062}}},
    {"S1-2.4M",
     "stage1",
     {{"r_k", 0.53},
      {"pc0_variance", 0.29},
      {"bias_strength", 0.0165},
      {"alpha_k", 3.32e-3},
      {"abs_r_k_a", 0.893},
      {"ap_overall", 0.545},
      {"ap_first20", 0.582},
      {"ap_drop", 0.061}}},
    {"S1-3.44M",
     "stage1",
     {{"r_k", 0.53},
      {"pc0_variance", 0.29},
      {"bias_strength", 0.0166},
      {"alpha_k", 3.34e-3},
      {"abs_r_k_a", 0.894},
      {"ap_overall", 0.545},
      {"ap_first20", 0.579},
      {"ap_drop", 0.057}}},
    {"S2-4.2M",
     "stage2",
     {{"r_q", 0.84},
      {"r_k", 0.54},
      {"pc0_variance", 0.29},
      {"bias_strength", 0.0168},
      {"alpha_k", 3.33e-3},
      {"abs_r_k_a", 0.893},
      {"ap_overall", 0.548},
      {"ap_first20", 0.585},
      {"ap_drop", 0.062}}},
    {"S3-4.72M",
     "stage3",
     {{"r_q", 0.84},
      {"position_dominated", 0.58},
      {"q_positional", 0.11},
      {"pc0_variance", 0.29},
      {"bias_strength", 0.0194},
      {"alpha_k", 4.08e-3},
      {"abs_r_k_a", 0.918},
      {"ap_overall", 0.516},
      {"ap_first20", 0.552},
      {"ap_drop", 0.058}}},
    {"LC1-4K",
     "LC 4K→32K",
     {{"bias_strength", 0.0032},
      {"alpha_k", 5.01e-4},
      {"abs_r_k_a", 0.911},
      {"ap_overall", 0.507},
      {"ap_first20", 0.585},
      {"ap_drop", 0.153}}},
    {"LC1-20K",
     "LC 4K→32K",
     {{"bias_strength", 0.0032},
      {"alpha_k", 5.07e-4},
      {"abs_r_k_a", 0.913},
      {"ap_overall", 0.507},
      {"ap_first20", 0.582},
      {"ap_drop", 0.147}}},
    {"LC2-4K",
     "LC 32K→64K",
     {{"bias_strength", 0.0018},
      {"alpha_k", 2.68e-4},
      {"abs_r_k_a", 0.906},
      {"ap_overall", 0.502},
      {"ap_first20", 0.590},
      {"ap_drop", 0.168}}},
    {"LC2-20K",
     "LC 32K→64K",
     {{"r_q", 0.87},
      {"r_k", 0.46},
      {"position_dominated", 0.71},
      {"q_positional", 0.03},
      {"mixed", 0.26},
      {"pc0_variance", 0.34},
      {"bias_strength", 0.0018},
      {"alpha_k", 2.69e-4},
      {"abs_r_k_a", 0.905},
      {"ap_overall", 0.503},
      {"ap_first20", 0.588},
      {"ap_drop", 0.161}}},
};

const OverviewRow* find_label(const std::vector<const OverviewRow*>& rows,
                              const std::string& label) {
  const auto found = std::find_if(rows.begin(), rows.end(),
                                  [&](const OverviewRow* row) { return row->label == label; });
  return found == rows.end() ? nullptr : *found;
}

}  // namespace

const std::vector<PublishedRun>& published_runs(const std::string& name) {
  if (name != "smollm3") bad_input("--published {}: known is smollm3", in_quotes(name));
  return kSmolLm3;
}

Comparison compare_with(const std::vector<PublishedRun>& published,
                        const std::vector<OverviewRow>& rows) {
  std::vector<const OverviewRow*> whole;  // in the order of the runs
  for (const auto& row : rows)
    if (row.layers == "all") whole.push_back(&row);
  Comparison comparison;
  bool any = false;
  for (const auto& run : published) {
    const auto* ours = find_label(whole, run.label);
    any = any || ours != nullptr;
    comparison.runs.push_back({&run, ours});
  }
  if (any) return comparison;
  comparison.by_label = false;
  if (whole.size() != published.size())
    bad_input(
        "no run has the label of a published checkpoint ({} to {}), and {} finished runs cannot be "
        "matched with {} checkpoints by their order",
        published.front().label, published.back().label, whole.size(), published.size());
  for (std::size_t i = 0; i < whole.size(); ++i) comparison.runs[i].ours = whole[i];
  return comparison;
}

}  // namespace qkscope
