// Engines implemented as Python objects, and Python exceptions that pass through the library.
#pragma once

#include <memory>
#include <string>

#include <nanobind/nanobind.h>

#include "qkscope/error.h"
#include "qkscope/experimental/engine.h"

namespace qkscope::python {

// Runs `body` without the GIL. If the library calls Python code and that code raises an exception,
// the exception propagates unchanged.
template <typename Body>
auto run_without_gil(const Body& body);

// A Python object with the methods run(request) and encode(text, max_length) -> (ids, truncated).
class PythonEngine : public ExternalEngine {
 public:
  PythonEngine(nanobind::object object, const nanobind::dict& description);
  ~PythonEngine() override;

  const EngineModel& model() const override { return model_; }
  void run(const Batch& batch, Observer& observer) override;
  Tokenizer::Encoding encode(const std::string& text, std::int64_t max_length) override;

 private:
  nanobind::object object_;
  EngineModel model_;
};

// Stores the active Python exception for rethrow_python_error() and throws a qkscope::Error.
[[noreturn]] void throw_python_error(nanobind::python_error& error);
void forget_python_error();
void rethrow_python_error();  // rethrows the stored exception, if any; needs the GIL

template <typename Body>
auto run_without_gil(const Body& body) {
  forget_python_error();
  try {
    const nanobind::gil_scoped_release other_threads_may_run;
    return body();
  } catch (const Error&) {
    rethrow_python_error();
    throw;
  }
}

}  // namespace qkscope::python
