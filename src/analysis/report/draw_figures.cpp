#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <mutex>

#include <fmt/format.h>

#include "analysis/figures/gnuplot.h"
#include "analysis/figures/registry.h"
#include "analysis/figures/up_to_date.h"
#include "analysis/report/report.h"
#include "base/core/error.h"
#include "base/core/text.h"
#include "base/core/thread_pool.h"
#include "base/io/folder.h"
#include "base/io/output_file.h"
#include "qkscope/experimental/log.h"
#include "qkscope/figures.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kFormats = {"svg", "png", "pdf"};

// A temporary folder inside the output folder, so that rename() moves finished files. The
// destructor removes it.
class DrawingFolder {
 public:
  explicit DrawingFolder(const std::string& out) {
    std::string name = out + "/.drawing-XXXXXX";
    if (!::mkdtemp(name.data())) system_error("make a folder in", out, errno);
    path_ = name;
  }
  ~DrawingFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  DrawingFolder(const DrawingFolder&) = delete;
  DrawingFolder& operator=(const DrawingFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void check(const DrawOptions& options) {
  if (options.formats.empty()) bad_input("--format: expected some of svg,png,pdf");
  for (const auto& format : options.formats)
    if (std::ranges::find(kFormats, format) == kFormats.end())
      bad_input("--format: '{}' is not a format; expected some of svg,png,pdf", format);
  for (const int component : options.components)
    if (component < 0)
      bad_input("--components: {} is no component; expected two from 0 on, such as 0,1", component);
  if (options.only.empty()) return;
  const auto names = figure_names();
  if (std::ranges::find(names, options.only) != names.end()) return;
  const auto guess = nearest(options.only, names);
  bad_input("--only: '{}' is not a figure{}; there are {}", options.only,
            guess.empty() ? "" : fmt::format("; did you mean '{}'?", guess),
            fmt::join(names, ", "));
}

Figure make(const FigureKind& kind, const Results& results) {
  for (const auto& table : kind.tables) {
    if (!results.has(table)) return nothing_to_draw(fmt::format("there is no {}.parquet", table));
    if (results.frame(table).rows() == 0)
      return nothing_to_draw(fmt::format("{}.parquet has no rows", table));
  }
  Figure figure = kind.make(results);
  if (figure.missing.empty() && figure.data.rows() == 0)
    return nothing_to_draw("none of its numbers exists");
  return figure;
}

std::string caption_file(const std::string& name, const Figure& figure) {
  return fmt::format("{}\n\n{}\n\nThe numbers drawn are in {}.csv; `gnuplot {}.gp` draws them.\n",
                     figure.title, figure.caption, name, name);
}

void draw_one(const std::string& folder, const std::string& name, const Figure& figure,
              const std::vector<std::string>& formats) {
  figure.data.write_csv(folder + "/" + name + ".csv");
  write_file(folder + "/" + name + ".gp", gnuplot_script(name, figure, formats));
  write_file(folder + "/" + name + ".txt", caption_file(name, figure));
  run_gnuplot(folder, name);
}

void move_finished(const std::string& from, const std::string& to, const std::string& name,
                   const std::vector<std::string>& formats) {
  std::vector<std::string> endings = formats;
  endings.insert(endings.end(), {"csv", "gp", "txt"});
  for (const auto& ending : endings) {
    const auto file = fmt::format("/{}.{}", name, ending);
    std::error_code error;
    fs::rename(from + file, to + file, error);
    if (error) system_error("move a figure to", to + file, error.value());
  }
}

// Makes every figure that the options ask for; figures without data go to drawn.left_out.
std::vector<NamedFigure> make_figures(const DrawOptions& options, const Results& results,
                                      Drawn& drawn) {
  std::vector<NamedFigure> figures;
  for (const auto& kind : figure_kinds()) {
    const bool asked_for = options.only == kind.name;
    if (!options.only.empty() && !asked_for) continue;
    if (!asked_for && kind.runs == Runs::several && results.single()) {
      drawn.of_several.push_back(kind.name);
      continue;
    }
    if (kind.runs == Runs::one && !results.single()) {
      if (!asked_for) continue;
      bad_input("no figure '{}': it is of one run, and {} has {}; give the folder of one of them",
                kind.name, options.results, results.runs().size());
    }
    Figure figure = make(kind, results);
    if (!figure.missing.empty()) {
      if (asked_for) bad_input("no figure '{}': {}", kind.name, figure.missing);
      drawn.left_out.emplace_back(kind.name, figure.missing);
      continue;
    }
    drawn.figures.push_back(kind.name);
    figures.push_back({kind.name, std::move(figure)});
  }
  return figures;
}

void draw_all(const std::vector<NamedFigure>& figures, const std::string& folder,
              const std::vector<std::string>& formats, bool quiet) {
  Progress progress(
      {.what = "figures", .unit = "figures", .total = std::ssize(figures), .quiet = quiet});
  std::mutex mutex;
  std::int64_t done = 0;
  parallel_for(std::ssize(figures), [&](std::int64_t i) {
    const auto& [name, figure] = figures[static_cast<std::size_t>(i)];
    draw_one(folder, name, figure, formats);
    const std::lock_guard lock(mutex);
    progress.update(++done);
  });
  progress.finish();
}

Drawn draw(const DrawOptions& options) {
  check(options);
  const Results results(options.results,
                        {options.components, options.head, options.scores, options.attention});
  const bool record = options.only.empty() && !options.again;
  Json inputs;
  if (record) {
    inputs = drawing_inputs(options, results);
    if (auto before = up_to_date(options, inputs)) return *before;
  }
  Drawn drawn;
  const auto figures = make_figures(options, results, drawn);
  if (!figures.empty()) require_gnuplot();
  make_folders(options.out);
  delete_drawing_record(options);
  const DrawingFolder drawing(options.out);
  const bool report = options.report && options.only.empty();
  std::vector<std::string> formats = options.formats;
  if (report) formats.insert(formats.end(), {"svg", "png"});  // the report embeds one of the two
  draw_all(figures, drawing.path(), formats, options.quiet);
  if (report) {
    drawn.report = options.out + "/report.html";
    write_file(drawn.report, report_page({results, figures, drawn, drawing.path()}));
  }
  for (const auto& [name, figure] : figures) {
    // The script that the user keeps draws only the requested formats.
    if (report)
      write_file(drawing.path() + "/" + name + ".gp",
                 gnuplot_script(name, figure, options.formats));
    move_finished(drawing.path(), options.out, name, options.formats);
  }
  if (record) write_drawing_record(options, inputs, drawn);
  return drawn;
}

}  // namespace

Drawn draw_figures(const DrawOptions& options) {
  return translate_exceptions([&] { return draw(options); });
}

std::vector<std::string> figure_names() {
  return translate_exceptions([] {
    std::vector<std::string> names;
    for (const auto& kind : figure_kinds()) names.emplace_back(kind.name);
    return names;
  });
}

}  // namespace qkscope
