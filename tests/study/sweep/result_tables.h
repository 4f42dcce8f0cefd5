// Hand-made results: tables with a few heads and known statistics.
#pragma once

#include <string>
#include <vector>

#include "base/io/folder.h"
#include "base/io/json.h"
#include "base/io/output_file.h"
#include "qkscope/tables.h"

namespace qkscope {

struct MadeHead {
  std::int64_t layer = 0;
  std::int64_t head = 0;
  double r_q = 0;
  double r_k = 0;
  double alpha_k = 0;
  double ap_profile = 0;
  std::string head_class = "mixed";
};

inline void write_made_tables(const std::string& folder, const std::vector<MadeHead>& heads) {
  using Type = Table::Type;
  Table qk;
  qk.column("layer", Type::integer).column("head", Type::integer).column("pc", Type::integer);
  qk.column("explained_variance", Type::real).column("r_q", Type::real).column("r_k", Type::real);
  Table taxonomy;
  taxonomy.column("layer", Type::integer).column("head", Type::integer).column("class", Type::text);
  Table rotated;
  rotated.column("layer", Type::integer).column("head", Type::integer);
  for (const char* name : {"alpha_q", "alpha_k", "r_k_a", "bias_strength", "omega"})
    rotated.column(name, Type::real);
  Table metrics;
  metrics.column("layer", Type::integer).column("q_head", Type::integer);
  metrics.column("ap_overall", Type::real).column("ap_profile_overall", Type::real);
  Table profile;
  profile.column("layer", Type::integer).column("head", Type::integer);
  for (const char* name : {"bin_low", "bin_high", "ap"}) profile.column(name, Type::real);
  for (const auto& h : heads) {
    for (std::int64_t pc = 0; pc < 2; ++pc) {
      const auto sign = static_cast<double>(1 - 2 * pc);
      qk.add({h.layer, h.head, pc, 0.5 / static_cast<double>(1 + pc), sign * h.r_q, sign * h.r_k});
    }
    taxonomy.add({h.layer, h.head, h.head_class});
    rotated.add({h.layer, h.head, 2 * h.alpha_k, h.alpha_k, -h.r_k, 10 * h.alpha_k, -0.25});
    metrics.add({h.layer, h.head, 0.1, h.ap_profile});
    // Ten bins of 100 tokens, the first without a value; plasticity falls by 0.01 a bin.
    for (std::int64_t bin = 0; bin < 10; ++bin)
      profile.add({h.layer, h.head, 100.0 * static_cast<double>(bin),
                   100.0 * static_cast<double>(bin + 1),
                   bin == 0 ? std::nan("") : h.ap_profile - 0.01 * static_cast<double>(bin)});
  }
  const std::vector<std::pair<std::string, const Table*>> tables = {{"qk", &qk},
                                                                    {"taxonomy", &taxonomy},
                                                                    {"rotated", &rotated},
                                                                    {"head_metrics", &metrics},
                                                                    {"head_profile", &profile}};
  for (const auto& [name, table] : tables) table->write_parquet(folder + "/" + name + ".parquet");
}

// `errors`: rows of errors.csv, "" for none.
inline void write_made_results(const std::string& folder, const std::string& label,
                               const std::vector<MadeHead>& heads, const std::string& errors = "") {
  make_folders(folder);
  write_file(folder + "/summary.json", Json{{"model", label}}.dump());
  write_made_tables(folder, heads);
  if (!errors.empty())
    write_file(folder + "/errors.csv", "quantity,heads,mean,se,low,high,texts,n_heads\n" + errors);
}

// A sweep folder with finished runs.
inline void write_made_sweep(const std::string& folder, const std::vector<std::string>& labels,
                             const std::vector<MadeHead>& heads, const std::string& errors = "") {
  Json runs = Json::array();
  for (const auto& label : labels) {
    runs.push_back({{"label", label}, {"phase", ""}, {"order", runs.size()}, {"state", "done"}});
    write_made_results(folder + "/runs/" + label, label, heads, errors);
  }
  write_file(folder + "/runs.json", Json{{"name", "s"}, {"runs", runs}}.dump());
}

// Means: r_q 0.7, r_k 0.2, |r_k| 0.4, |alpha_k| 0.002, ap_profile 0.6; one of two
// position-dominated.
inline std::vector<MadeHead> made_heads() {
  return {{0, 3, 0.8, 0.6, 0.003, 0.7, "position_dominated"},
          {9, 1, 0.6, -0.2, -0.001, 0.5, "mixed"}};
}

}  // namespace qkscope
