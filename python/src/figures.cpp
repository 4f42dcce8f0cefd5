// Bindings of qkscope/figures.h.
#include "qkscope/figures.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind.h"

namespace qkscope::python {
namespace nb = nanobind;

void bind_figures(nb::module_& module) {
  nb::class_<DrawOptions>(module, "DrawOptions")
      .def(nb::init<>())
      .def_rw("results", &DrawOptions::results)
      .def_rw("out", &DrawOptions::out)
      .def_rw("only", &DrawOptions::only)
      .def_rw("formats", &DrawOptions::formats)
      .def_rw("report", &DrawOptions::report)
      .def_rw("quiet", &DrawOptions::quiet)
      .def_rw("components", &DrawOptions::components)
      .def_rw("head", &DrawOptions::head)
      .def_rw("scores", &DrawOptions::scores)
      .def_rw("attention", &DrawOptions::attention);
  nb::class_<ReportOptions>(module, "ReportOptions")
      .def(nb::init<>())
      .def_rw("results", &ReportOptions::results)
      .def_rw("compare", &ReportOptions::compare)
      .def_rw("out", &ReportOptions::out)
      .def_rw("components", &ReportOptions::components)
      .def_rw("attention", &ReportOptions::attention)
      .def_rw("quiet", &ReportOptions::quiet);
  nb::class_<Drawn>(module, "Drawn", "What figures() drew.")
      .def_ro("figures", &Drawn::figures, "Names of the figures drawn.")
      .def_ro("left_out", &Drawn::left_out, "(name, why) of those that have no data.")
      .def_ro("of_several", &Drawn::of_several,
              "Figures that compare runs, left out because there is one run.")
      .def_ro("report", &Drawn::report, "Path of report.html; empty when it was not asked for.");
  module.def(
      "draw_figures", [](const DrawOptions& options) { return draw_figures(options); },
      nb::arg("options"), nb::call_guard<nb::gil_scoped_release>());
  module.def(
      "write_report", [](const ReportOptions& options) { return write_report(options); },
      nb::arg("options"), nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace qkscope::python
