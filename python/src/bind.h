// Each function adds the classes of one part of the engine to the Python module.
#pragma once

#include <nanobind/nanobind.h>

namespace qkscope::python {

void bind_config(nanobind::module_& module);
void bind_weights(nanobind::module_& module);
void bind_device_array(nanobind::module_& module);
void bind_model(nanobind::module_& module);
void bind_tokenizer(nanobind::module_& module);
void bind_engine(nanobind::module_& module);
void bind_capture(nanobind::module_& module);
void bind_analysis(nanobind::module_& module);
void bind_generate(nanobind::module_& module);
void bind_figures(nanobind::module_& module);
void bind_tables(nanobind::module_& module);
void bind_attribution(nanobind::module_& module);
void bind_heads(nanobind::module_& module);
void bind_statistics(nanobind::module_& module);
void bind_studies(nanobind::module_& module);
void bind_viewer(nanobind::module_& module);

}  // namespace qkscope::python
