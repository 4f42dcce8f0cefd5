// qkscope._engine: the engine as Python sees it. The package around it is in python/qkscope.
#include <nanobind/stl/string.h>

#include "bind.h"
#include "core/error.h"
#include "core/thread_pool.h"
#include "qkscope/version.h"

namespace nb = nanobind;

NB_MODULE(_engine, module) {
  using namespace qkscope;
  module.attr("__version__") = version_string();
  nb::exception<Error> error(module, "Error");
  error.attr("__doc__") =
      "Everything qkscope complains about: what was found, what was expected, what to do.";
  error.attr("__module__") = "qkscope";
  module.def("set_threads", &set_thread_count, nb::arg("count"),
             nb::call_guard<nb::gil_scoped_release>(),
             "Threads for all computing from now on; 0: one per core.");
  module.def("threads", &thread_count, "Threads that computing uses.");
  python::bind_config(module);
  python::bind_weights(module);
  python::bind_device_array(module);
  python::bind_model(module);
  python::bind_tokenizer(module);
  python::bind_capture(module);
  python::bind_analysis(module);
  python::bind_figures(module);
}
