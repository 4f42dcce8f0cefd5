// Output folders: checks them before a long computation, and writes tables and figures into them.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "qkscope/tables.h"

namespace qkscope::cli {

// Throws a bad-input error if the folder does not exist and cannot be created, or is not writable.
// Creates nothing. An address of an object store must be reachable.
void check_output_folder(const std::string& path);

// Like check_output_folder(), for commands that cannot write to an object store.
void check_local_output(const std::string& path);

// Options --out, --format and --no-figures, for commands that print results and can also write them
// as tables and figures.
struct TableOutput {
  std::string out;  // "": print only
  std::string formats = "svg,png,pdf";
  bool no_figures = false;

  void add_to(CLI::App& command, const std::string& description);
  bool is_given() const { return !out.empty(); }
  // Throws a bad-input error if the folder cannot be used.
  void check() const {
    if (is_given()) check_local_output(out);
  }
  // Writes OUT/NAME.csv and OUT/NAME.parquet.
  void write(const Table& table, const std::string& name) const;
  // Draws figures of the tables into the folder OUT/figures.
  void draw(bool quiet) const;
};

}  // namespace qkscope::cli
