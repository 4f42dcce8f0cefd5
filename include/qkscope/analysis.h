// Analyses of a capture: how the queries and keys of each attention head depend on position.
//
//   AnalyzeOptions options;
//   options.data_root = "captures/smollm3";
//   const AnalysisRun run = analyze_capture(options);
//   write_results("results/smollm3", run, options);
//
// docs/explanation/analysis.md defines every number. An undefined number is NaN.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "qkscope/captures.h"
#include "qkscope/correlation.h"
#include "qkscope/error.h"
#include "qkscope/tables.h"
#include "qkscope/version.h"

namespace qkscope {

// NaN, the value of quantities that are undefined or were not computed.
inline constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

// ---- Combined PCA: principal components of the pooled queries and keys of one head.

struct PcaOptions {
  int components = 10;
  int separate_components = 5;     // PCA of queries alone and of keys alone; 0: none
  double weak_correlation = 0.05;  // a smaller |r_q| does not decide the sign of a component
};

struct PcaComponent {
  double explained_variance = 0;  // fraction of the total variance
  Correlation q;                  // query projections with position
  Correlation k;                  // key projections with position
  std::vector<double> direction;  // shape (dim), unit length; sign fixed by q.r or k.r
};

// Combined PCA of one query head and its key head.
struct PcaResult {
  std::vector<PcaComponent> components;
  // Shape (dim). Explained variance of every component, including those not in `components`.
  std::vector<double> explained_variance;
  // Projections onto the first component: mean relative to the pooled mean, slope over position.
  double mu_q = 0;
  double mu_k = 0;
  double slope_q = 0;  // per token
  double slope_k = 0;
  double fisher = 0;  // squared distance of the means / mean of the two within-class variances
  // Variance explained by position: sum over `components` of explained variance times r^2, where r
  // is the correlation with position.
  double positional_variance_q = 0;
  double positional_variance_k = 0;
  double qk_accuracy = 0;  // linear discriminant of queries against keys on components 0 and 1
  // Per group of texts: the number of rows, and how many of them the discriminant classifies
  // correctly. Both are empty if jackknife standard errors were not requested.
  std::vector<std::int64_t> qk_rows;
  std::vector<std::int64_t> qk_right;
  // Correlation with position along the drift axis Cov(X, t), cross-fitted: the axis of each group
  // of texts is fitted on the other groups. NaN for a single text.
  double r_q_axis = kNoNumber;
  double r_k_axis = kNoNumber;
  // Shape (groups of texts): jackknife replicates of r_q_axis and r_k_axis, each without the rows
  // of one group. The drift axes are not refitted.
  std::vector<double> r_q_axis_without;
  std::vector<double> r_k_axis_without;
};

// One principal component of the queries alone or of the keys alone. The sign is chosen so that the
// largest coordinate is positive.
struct SideComponent {
  double explained_variance = 0;  // fraction of the total variance
  Correlation with_position;      // of the projections
};

// ---- Taxonomy: classes of heads by correlation with position.

enum class HeadClass {
  position_dominated,  // r_q and |r_k| high
  q_positional,        // r_q high, |r_k| low
  k_positional,        // r_q low, |r_k| high
  content_focused,     // both low
  mixed,               // anything else
  undefined,           // a correlation is undefined (constant positions, a single row)
};

struct TaxonomyOptions {
  double high = 0.7;
  double low = 0.3;
};

// Classifies a head as in the Q/K geometry study (share/published/README.md): r_q and r_k are the
// correlations of queries and keys with position on PC0 (components[0].q.r, components[0].k.r).
QKSCOPE_API HeadClass classify(double r_q, double r_k, const TaxonomyOptions& options = {});
// Classifies a head by |r_q_axis| and |r_k_axis|, the correlations with position along the drift
// axis. The class can differ from classify(), for example if PC0 separates queries from keys.
QKSCOPE_API HeadClass classify_axis(const PcaResult& pca, const TaxonomyOptions& options = {});
QKSCOPE_API std::string to_string(HeadClass head_class);  // "mixed"; "" for undefined

// Returns the index of the principal component with the largest min(|r_q|, |r_k|), or -1 if no
// component has both correlations.
QKSCOPE_API int position_component(const PcaResult& pca);

// ---- Planar rotation: the direction a along which rows drift with position, the direction b that
// separates queries from keys, and planes of the orthogonal complement of both.

struct RotationOptions {
  // How the direction b that separates queries from keys is computed. mean: difference of the
  // means, orthogonal to the drift direction a. eigen: first eigenvector of D = E[(q-k)(q-k)^T]
  // over all pairs, after projecting a out of D. eigen_then_project: first eigenvector of D,
  // from which a is projected out afterwards.
  enum class Separation { mean, eigen, eigen_then_project };
  Separation separation = Separation::mean;
  std::vector<double> inv_freq;  // RoPE frequencies of the layer; empty for NoPE or unknown
  double max_omega = 1;          // upper end of the frequency search without inv_freq
  int pairs = 30;                // planes of the complement
  double active_angle_r = 0.9;   // a plane is active (turns with position) above this angle_r
  int null_draws = 200;          // position shuffles behind PositionNull; 0: none
  std::uint64_t seed = 0;        // seed of the shuffles
};

// Permutation null: correlations with position along the drift direction `a` after shuffling
// positions among rows and refitting `a`. NaN if no shuffles are requested.
struct PositionNull {
  double position_r = kNoNumber;  // mean |r| over the shuffles
  double r_q_a = kNoNumber;
  double r_k_a = kNoNumber;
  // Permutation p values: (1 + shuffles that reach the observed |r|) / (1 + shuffles).
  double position_r_p = kNoNumber;
  double r_q_a_p = kNoNumber;
  double r_k_a_p = kNoNumber;
};

// A plane in the orthogonal complement of the drift direction a and the separation direction b.
// Plane i is spanned by the principal axes 2i and 2i + 1.
struct ComplementPair {
  double variance_share = 0;        // of the variance without a and b
  double variance_share_total = 0;  // of the total variance
  double angle_r = 0;  // |mean(exp(i(theta - omega t)))|: 1 where rows rotate with position
  double omega = 0;    // radians per token; negative: rotation against RoPE
  double nearest_inv_freq = 0;  // NaN without RoPE frequencies
  double separability = 0;      // balanced accuracy of queries against keys; NaN: unknown
  bool active = false;          // angle_r above RotationOptions::active_angle_r
};

// Planar rotation of one query head.
struct RotationResult {
  std::vector<double> a;          // shape (dim)
  std::vector<double> b;          // shape (dim)
  std::vector<double> c0;         // shape (dim); c0 and c1 span the complement's first plane
  std::vector<double> c1;         // shape (dim); c0 and c1 are empty if the complement has no plane
  double position_r = kNoNumber;  // |correlation| with position along a, queries and keys pooled
  double r_q_a = kNoNumber;       // correlation of queries, and of keys, with position along a
  double r_k_a = kNoNumber;
  double alpha_q = kNoNumber;  // slope along a, per token
  double alpha_k = kNoNumber;
  double mu_q_a = kNoNumber;  // means of the uncentred vectors along a and b
  double mu_k_a = kNoNumber;
  double mu_q_b = kNoNumber;
  double mu_k_b = kNoNumber;
  double bias_strength = kNoNumber;        // mu_q_a * alpha_k
  double separation_strength = kNoNumber;  // E[(b.(q-k))^2] / E[|q-k|^2] over all pairs
  double var_frac_a = kNoNumber;           // fractions of the total variance
  double var_frac_b = kNoNumber;
  double plane_var_fraction = kNoNumber;  // var_frac_a + var_frac_b
  double residual_pos_r = kNoNumber;      // largest |r| with position orthogonal to a: about 0
  double content_var_b = kNoNumber;       // variance along b within queries and within keys
  double omega = kNoNumber;  // frequency of the best sinusoid through the projection on a
  double omega_r_squared = kNoNumber;
  std::vector<ComplementPair> complement;
  double active_variance = kNoNumber;  // of active planes, fraction of the variance without a and b
  double active_variance_total = kNoNumber;  // of active planes, fraction of the total variance
  std::vector<double> active_axes;           // shape (2 * active planes, dim)
  PositionNull null;
  std::string undefined;  // reason why a or b is undefined; empty where both exist

  int active_planes() const {
    int count = 0;
    for (const auto& pair : complement) count += pair.active ? 1 : 0;
    return count;
  }
};

// ---- Attention plasticity: how often the choice between two keys of one text would flip with the
// query's content, at each query position. Cells with more than max_pairs eligible key pairs use a
// random sample of pairs.

struct PlasticityOptions {
  // How the mean and variance of the queries in a profile bin are estimated. local: local linear
  // regression on position around the bin's centre; bin: sample mean and variance of the bin;
  // bucket: those of the capture bucket, with the drift coordinate from the regression line at the
  // bucket's centre; linear: one regression line through all queries.
  enum class QueryModelKind { local, bin, bucket, linear };
  QueryModelKind profile_model = QueryModelKind::local;
  // Residual covariance of the queries: its diagonal in rotated coordinates, or the full matrix
  // with correlations shrunk towards 0 (Ledoit-Wolf).
  enum class Covariance { diagonal, full };
  Covariance covariance = Covariance::diagonal;
  std::int64_t max_pairs = 10'000'000;  // per cell; above it a seeded sample of this size
  std::uint64_t seed = 0;
  double p_alpha = 0.01;  // significance level of the normality tests
  int heatmap_bins = 16;  // per axis
  // Number of equal-width bins of the position profile. 0: about 50 queries per bin (a whole number
  // of bins per bucket if buckets have equal width). kBuckets: the capture's position buckets.
  static constexpr int kBuckets = -1;
  static constexpr int kMostBins = 8192;
  int profile_bins = 0;
  std::int64_t context = 0;  // tokens; 0: inferred from the rows
  // Quintiles and deciles divide the positions that have plasticity values, or the whole context.
  enum class Fifths { range, context };
  Fifths fifths = Fifths::range;
  // Ascending edges (token positions) of the profile's length bins; empty: 0, 1024, 2048, 4096, ...
  std::vector<std::int64_t> length_bins;
  std::optional<std::int32_t> sliding_window;
  std::optional<SamplerOptions> sampler;  // sampler of the capture; none: buckets are inferred
  // Jackknife groups of texts: the smallest example key (text id) of each group, ascending. If
  // empty, the texts are split into up to 20 groups.
  std::vector<std::int64_t> text_groups;
  bool replicates = true;  // compute jackknife replicates, for standard errors
  // Approximate number of key pairs per bin used to estimate the jackknife gradients.
  std::int64_t replicate_pairs = 256;
  // Approximate limit on the keys per bin that the model-free estimate ap_free compares in pairs;
  // above the limit, it uses a seeded sample of texts and keys. kAllKeys: no limit.
  static constexpr std::int64_t kAllKeys = std::int64_t{1} << 40;
  std::int64_t free_keys = 80;
};

QKSCOPE_API std::string to_string(PlasticityOptions::QueryModelKind kind);  // "local"

// Mean plasticity (how often the preferred key of a pair changes with the query) over key pairs.
struct MeanPlasticity {
  double ap = 0;              // NaN when there is no pair
  double stderr_ap = 0;       // over examples; NaN below two examples
  std::int64_t pairs = 0;     // evaluated key pairs
  std::int64_t eligible = 0;  // all key pairs; more than `pairs` if pairs are sampled
};

// Mean plasticity of key pairs within one position bucket, for queries of a later bucket.
struct BucketCell {
  std::int32_t q_bucket = 0;
  std::int32_t k_bucket = 0;
  MeanPlasticity mean;
};

// Plasticity for a bin of query positions: mean over all pairs of same-text keys before the bin.
struct ProfilePoint {
  std::int32_t bin = 0;
  double low = 0;  // positions [low, high)
  double high = 0;
  double position = 0;  // mean over the bin's queries
  std::int64_t queries = 0;
  MeanPlasticity mean;
  // Jackknife standard error over texts; each replicate omits the keys and the queries of one group
  // of texts. NaN without replicates.
  double se = kNoNumber;
  // Model-free estimate of plasticity: mean over key pairs of 4 p (1 - p) n / (n - 1), where p is
  // the fraction of the bin's n queries that prefer the first key. NaN for fewer than two queries.
  double ap_free = kNoNumber;
  double se_free = kNoNumber;
  std::int64_t free_pairs = 0;  // key pairs behind ap_free

  double centre() const { return 0.5 * (low + high); }
};

// Mean of the plasticity profile over its bins with centre position in [low, high).
struct ProfileBinMean {
  enum class Kind { decile, quintile, length };
  Kind kind = Kind::decile;
  int bin = 0;  // index among the bins of this kind
  double low = 0;
  double high = 0;
  double ap = 0;          // NaN when no bin has a value
  std::int64_t bins = 0;  // profile bins with a value
  double se = 0;          // jackknife standard error over texts
};
QKSCOPE_API std::string to_string(ProfileBinMean::Kind kind);  // "decile"

// One cell of the heatmap: mean plasticity of key pairs, binned by the distance between the two
// keys and the distance from the query to their midpoint.
struct HeatmapCell {
  double key_distance_low = 0;  // |t1 - t2| in [low, high)
  double key_distance_high = 0;
  double query_distance_low = 0;  // query position - midpoint of the pair
  double query_distance_high = 0;
  double ap = 0;
  std::int64_t pairs = 0;     // evaluated key pairs
  std::int64_t eligible = 0;  // all key pairs of the cell; more than `pairs` if bins are sampled
};

// Normality of query residuals in rotated coordinates; the first axis is the drift axis.
struct ResidualNormality {
  double first_skew = 0;
  double first_kurtosis = 0;  // excess
  double first_ks_p = 0;
  double median_abs_skew = 0;  // over the other coordinates
  double median_abs_kurtosis = 0;
  double median_ks_p = 0;
  double share_below_alpha = 0;  // coordinates with a p value below PlasticityOptions::p_alpha
};

// Jackknife replicates of the plasticity profile: replicate i omits all rows of text group i.
struct ProfileReplicates {
  int groups = 0;
  std::vector<double> value;    // (groups, points of the profile); NaN where there is none
  std::vector<double> free;     // (groups, points of the profile): model-free
  std::vector<double> queries;  // (groups, points of the profile): queries left in each bin
};

// Attention plasticity of one query head.
struct PlasticityResult {
  double r2_pos = kNoNumber;        // R^2 of each query dimension on position, mean over dimensions
  double beta_norm = kNoNumber;     // L2 norm of the drift per token
  double r2_scalar = kNoNumber;     // R^2 of log2(position + 1) on the drift coordinate
  double mae_baseline = kNoNumber;  // mean absolute error of log2(position + 1) around its mean
  double mae_projection = kNoNumber;  // mean absolute error of the drift regression
  double mae_ratio = kNoNumber;       // mae_projection / mae_baseline
  ResidualNormality normality;
  double ap_overall = kNoNumber;          // mean over the cells of `table`
  double ap_profile_overall = kNoNumber;  // the head's plasticity: mean of the profile
  double ap_first20 = kNoNumber;          // mean of the profile's bins in the first fifth
  double ap_last20 = kNoNumber;           // mean of the profile's bins in the last fifth
  double ap_drop = kNoNumber;             // ap_first20 - ap_last20
  double ap_free_overall = kNoNumber;     // mean of the model-free profile over its queries
  double ap_free_first20 = kNoNumber;
  double ap_free_last20 = kNoNumber;
  double ap_free_drop = kNoNumber;
  // Whether ap_profile_overall and ap_free_overall agree within their standard errors (added in
  // quadrature); nullopt without standard errors.
  std::optional<bool> gaussian;
  std::vector<BucketCell> table;
  std::vector<ProfilePoint> profile;  // bins that hold queries
  int profile_bins = 0;               // over the context; 0: the capture's buckets
  double profile_context = 0;         // tokens
  double profile_low = 0;             // fifths and tenths divide [profile_low, profile_high)
  double profile_high = 0;
  std::vector<ProfileBinMean> profile_bin_means;
  ProfileReplicates profile_without;     // empty where no replicates are wanted
  std::vector<HeatmapCell> heatmap;      // cells that hold a pair
  std::vector<double> component_r2;      // (dim) R^2 of each dimension on position
  std::vector<double> component_weight;  // (dim), sums to 1
};

// ---- Geometry: measures of heads from the literature. docs/explanation/geometry.md defines every
// column.

struct GeometryOptions {
  std::int64_t score_pairs = 8192;  // (query, key) pairs per head of distance_share and the like
  int swap_queries = 48;            // queries per head whose keys are swapped for symbolic_score
};

// A pair of dimensions that RoPE rotates at one frequency. All values describe vectors before RoPE.
struct RotaryPair {
  double inv_freq = 0;    // radians per token
  double mean_abs_q = 0;  // mean length of the pair's two coordinates
  double mean_abs_k = 0;
  double concentration_q = 0;  // length of the mean over the mean length
  double concentration_k = 0;
  double frequency_use = 0;  // share of the variance of the score
};

// A number with its standard error over texts; NaN where unknown.
struct GeometryValue {
  double value = kNoNumber;
  double se = kNoNumber;
  std::vector<double> without = {};  // (groups of texts) jackknife replicates, or empty
};

// Geometry of one query head and its key head.
struct GeometryResult {
  // Values by column name. Columns that cannot be computed from the input are missing.
  std::map<std::string, GeometryValue> columns;
  std::vector<RotaryPair> pairs;  // empty without RoPE

  void set(const std::string& column, double value, double se = kNoNumber) {
    columns[column] = {value, se};
  }
  double value(const std::string& column) const {
    const auto found = columns.find(column);
    return found == columns.end() ? GeometryValue().value : found->second.value;
  }
};

// ---- All heads of a capture.

// One sampled query or key, projected onto the axes of its head, for scatter plots. Coordinates of
// analyses that did not run are NaN.
struct ScatterPoint {
  HeadKind side = HeadKind::query;
  std::int32_t position = 0;
  std::string token;       // empty in captures without token text
  std::vector<double> pc;  // shape (components), relative to the pooled mean
  double a = 0;            // coordinates of the uncentred vector, as mu_q_a
  double b = 0;
  double c0 = 0;  // first plane of the complement, relative to the pooled mean
  double c1 = 0;
  std::vector<double> planes;  // shape (2 * planes), for heads in AnalyzeOptions::planes_of
};

// Attention of a layer: over all earlier keys, or over a sliding window of them.
enum class AttentionKind { any, full, sliding };

// Options of analyze_capture().
struct AnalyzeOptions {
  // Local folder, or REPO@BRANCH of a dataset on the Hugging Face Hub; its head files (vectors of
  // one head each) are downloaded into the cache. An existing folder takes precedence.
  std::string data_root;
  std::string label;  // value of the column `model`; empty: the model name in the capture
  // Only for the output of `qkscope stats`: analyse the vectors before RoPE.
  bool pre_rope = false;
  // Only for the output of `qkscope stats`: folder of a capture of the same run, whose sampled keys
  // are used to compute attention plasticity. If empty, plasticity is not computed.
  std::string keys;
  bool pca = true;
  bool rotation = true;
  bool plasticity = true;
  bool geometry = true;
  PcaOptions pca_options;
  TaxonomyOptions taxonomy;
  RotationOptions rotation_options;      // inv_freq is set per head from the capture
  PlasticityOptions plasticity_options;  // sliding_window, sampler and seed are set per head
  GeometryOptions geometry_options;
  std::string weights;  // model (folder, id or ID@REVISION) of weight_rank_90; empty: none
  std::optional<HeadCounts> head_counts;  // for captures without head counts in their metadata
  // For captures without metadata: folder, id or ID@REVISION of a model; its config.json provides
  // head counts, RoPE and sliding windows.
  std::string model;
  std::vector<int> nope_layers;  // for captures without metadata: layers without RoPE
  std::int64_t max_tokens = 0;   // rows sampled per head file; 0: every row
  std::uint64_t seed = 0;        // seed of every random sample
  bool partial = false;          // accept an incomplete capture: analyse the existing heads
  std::vector<int> layers;       // layers to analyse; empty: all
  std::vector<HeadId> heads;     // query heads to analyse; empty: all
  AttentionKind attention = AttentionKind::any;  // analyse only layers of this kind
  bool errors = true;             // jackknife errors over texts of the means over heads
  int scatter = 96;               // rows per head and side kept for scatter plots; 0: none
  std::vector<HeadId> planes_of;  // query heads whose scatter rows get coordinates on all planes
  bool quiet = false;             // no progress
  const std::atomic<bool>* stop = nullptr;  // set to true to cancel the download of head files
};

// Results of one query head and its key head.
struct HeadReport {
  HeadId query;
  int k_head = -1;
  RopeUse rope = RopeUse::unknown;
  std::optional<std::int32_t> window;  // tokens a query attends to; none: full attention
  int dim = 0;
  std::int64_t n_q = 0;  // rows
  std::int64_t n_k = 0;
  bool positions_vary = true;  // more than one position among queries, and among keys
  std::optional<PcaResult> pca;
  std::optional<RotationResult> rotation;
  std::optional<PlasticityResult> plasticity;
  std::optional<GeometryResult> geometry;
  std::vector<SideComponent> q_components;
  std::vector<SideComponent> k_components;  // set only on the first query head of each key head
  std::vector<ScatterPoint> scatter;
  // Jackknife replicates: one report per group of texts, computed without that group. Empty if
  // standard errors are not computed. Quantities whose mean has no standard error are NaN.
  std::vector<HeadReport> without_group;
  std::string error;  // why the head has no results; empty on success
  ErrorKind error_kind = ErrorKind::bad_input;
};

struct AnalysisTimes {  // seconds, summed over threads
  double read = 0;
  double moments = 0;
  double pca = 0;
  double rotation = 0;
  double plasticity = 0;
  double geometry = 0;
  double errors = 0;
};

// A mean over heads, with its standard error from a jackknife over groups of texts. Texts are the
// statistical sample; heads are fixed.
struct MeanError {
  std::string quantity;  // column of the overview: "r_q", "mixed" (fraction of heads) ...
  std::string heads;     // "all", "rope", "nope", "unknown", "full" or "sliding" layers
  double mean = 0;       // median where the name ends in _median
  double se = 0;         // NaN below two texts
  double low = 0;        // 95 % confidence interval
  double high = 0;
  std::int64_t texts = 0;
  std::int64_t n_heads = 0;
};

struct ResultTable {
  std::string name;  // "qk": written as qk.csv and qk.parquet
  Table table;
  bool csv = true;  // false: Parquet only
};

// Result of analyze_capture().
struct AnalysisRun {
  std::string label;
  Metadata capture;                   // metadata of the capture: model, commit, dtype, device ...
  std::string state;                  // content of _saver_state.json; empty without one
  bool from_sums = false;             // input is statistics: numbers that need rows are NaN
  bool compares_keys = true;          // false: no pairs of keys are available
  std::vector<HeadReport> heads;      // by layer and head
  std::int64_t texts = 0;             // texts with at least one row
  std::vector<MeanError> errors;      // errors of the means over heads; empty without errors
  std::vector<ResultTable> more;      // tables of statistics: attention, distance, key_channels
  std::vector<std::string> warnings;  // sentences about results with little evidence
  std::vector<std::string> notes;     // sentences about findings that affect reading the tables
  AnalysisTimes times;
  double seconds = 0;  // wall time of the analyses
};

// Runs the analyses over every head of a capture, or of a folder of statistics, on all cores. If a
// head fails, its HeadReport contains the error, and the other heads are still analysed.
QKSCOPE_API AnalysisRun analyze_capture(const AnalyzeOptions& options);

// ---- Results as tables and files.

// Number of empty fields in the result tables by file, column and reason.
using UndefinedCounts = std::map<std::string, std::map<std::string, std::map<std::string, int>>>;

// All tables of an analysis, and why some of their fields are empty.
struct ResultTables {
  std::vector<ResultTable> tables;
  UndefinedCounts undefined;
};

QKSCOPE_API ResultTables result_tables(const AnalysisRun& run, const AnalyzeOptions& options);

// Throws a bad-input error that names the differing options if `folder` contains results of another
// capture or results computed with other options. The options of an analysis are compared only if
// both runs include that analysis.
QKSCOPE_API void check_results_folder(const std::string& folder, const AnalyzeOptions& options);

// Writes NAME.csv and NAME.parquet for each table, timings.json, and summary.json last: means over
// heads, counts, failed heads, reasons for empty fields. Analyses that the folder already contains
// with the same options are kept. Results computed with other options are an error, as in
// check_results_folder(), unless `overwrite` is set, which removes them first.
QKSCOPE_API void write_results(const std::string& folder, const AnalysisRun& run,
                               const AnalyzeOptions& options, bool overwrite = false);

// Logs the heads that failed, one line per reason, and throws if any head failed. Call after
// write_results(), so that the exit code reports the failure; `folder` is the results folder.
QKSCOPE_API void report_failed_heads(const AnalysisRun& run, const std::string& folder);

// ---- Planted captures: synthetic heads with known structure, to test the analyses.

// A plane in which rows (queries or keys) rotate as their position increases.
struct PlantedPlane {
  double omega = 0;  // radians per token
  double radius = 0;
};

// A head whose rows drift along a direction a and whose queries are offset from its keys along a
// direction b, plus Gaussian noise.
struct PlantedOptions {
  int dim = 128;
  int examples = 500;
  std::int32_t context = 131072;    // tokens per example
  std::int32_t bucket_size = 8192;  // tokens
  double rows_per_bucket = 1;       // sampled, on average, per example
  double drift_q = 3e-5;            // per token, along a
  double drift_k = 2e-5;
  double mean_q_a = 0.5;  // at the middle of the context
  double mean_k_a = -0.5;
  double separation = 2;  // distance of the means along b
  double noise = 1;       // standard deviation in every direction
  std::vector<PlantedPlane> planes;
  bool round_to_bf16 = false;  // as captured from a model that runs in bfloat16
  std::uint64_t seed = 0;
};

// Options of write_planted_capture().
struct PlantedCaptureOptions {
  std::string data_root;
  int layers = 4;
  int query_heads = 8;  // per layer
  int key_heads = 2;
  int heads = 0;       // query heads written, spread evenly over the model; 0: all
  int nope_every = 4;  // every n-th layer has no rotating planes; 0: none
  double rope_theta = 5e6;
  int active_planes = 6;  // planes planted on RoPE layers, at RoPE frequencies
  double plane_radius = 3;
  int sliding_window = 0;  // tokens; 0: full attention
  int full_every = 0;      // with a window: every n-th layer has full attention; 0: none
  bool metadata = true;    // false: as a foreign capture without metadata
  PlantedOptions head;     // planes and seed are set per head
};

// Writes a complete synthetic capture in the standard layout: the head files, _saver_state.json,
// and planted.json (the planted parameters of each head).
QKSCOPE_API void write_planted_capture(const PlantedCaptureOptions& options);

}  // namespace qkscope
