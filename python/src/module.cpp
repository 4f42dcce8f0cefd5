// The extension module qkscope._engine. The Python package around it is in python/qkscope.
#include <cstdio>

#include <nanobind/stl/string.h>

#include "bind.h"
#include "qkscope/error.h"
#include "qkscope/experimental/log.h"
#include "qkscope/experimental/threads.h"
#include "qkscope/version.h"

namespace nb = nanobind;

namespace qkscope::python {
namespace {

// Log levels of Python's logging module.
int logging_level(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return 10;
    case LogLevel::info:
      return 20;
    case LogLevel::warning:
      return 30;
    case LogLevel::error:
      break;
  }
  return 40;
}

// Forwards log lines of the library to the logger "qkscope" until the interpreter exits.
void send_messages_to_logging() {
  set_log_callback(
      [](LogLevel level, std::string_view message) {
        const nb::gil_scoped_acquire python;
        nb::module_::import_("logging").attr("getLogger")("qkscope").attr("log")(
            logging_level(level), "%s", nb::str(message.data(), message.size()));
      },
      LogLevel::debug);
  nb::module_::import_("atexit").attr("register")(nb::cpp_function([] { set_log_callback({}); }));
}

// Maps qkscope::Error to the Python exception Error or, for bad input, to InputError(Error).
void bind_errors(nb::module_& module) {
  nb::exception<Error> error(module, "Error");
  error.attr("__doc__") =
      "Base of all errors of qkscope. Messages name the value found, the value expected and the "
      "remedy.";
  error.attr("__module__") = "qkscope";
  auto* const input_error = PyErr_NewExceptionWithDoc(
      "qkscope.InputError",
      "Error caused by the input: an argument, a file, data. The command line exits with code 2.",
      error.ptr(), nullptr);
  if (input_error == nullptr) throw nb::python_error();
  module.attr("InputError") = nb::steal(input_error);
  nb::register_exception_translator(
      [](const std::exception_ptr& thrown, void* type) {
        try {
          std::rethrow_exception(thrown);
        } catch (const Error& found) {
          if (found.kind() != ErrorKind::bad_input) throw;
          PyErr_SetString(static_cast<PyObject*>(type), found.what());
        }
      },
      input_error);
}

}  // namespace
}  // namespace qkscope::python

NB_MODULE(_engine, module) {
  using namespace qkscope;
  // Objects in the traceback of a script's last exception are alive at exit; they are not leaks.
  nb::set_leak_warnings(false);
  python::send_messages_to_logging();
  module.attr("__version__") = version_string();
  python::bind_errors(module);
  module.def("set_threads", &set_thread_count, nb::arg("count"),
             nb::call_guard<nb::gil_scoped_release>(),
             "Sets the number of threads; 0: one per core.");
  module.def("threads", &thread_count, "Threads that computing uses.");
  module.def(
      "show_progress", [](bool on) { set_progress_output(on ? stderr : nullptr); },
      nb::arg("on") = true, "Whether long operations show their progress on standard error.");
  python::bind_config(module);
  python::bind_weights(module);
  python::bind_device_array(module);
  python::bind_model(module);
  python::bind_tokenizer(module);
  python::bind_generate(module);
  python::bind_engine(module);
  python::bind_capture(module);
  python::bind_analysis(module);
  python::bind_figures(module);
  python::bind_tables(module);
  python::bind_heads(module);
  python::bind_attribution(module);
  python::bind_statistics(module);
  python::bind_studies(module);
  python::bind_viewer(module);
}
