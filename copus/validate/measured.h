// MeasuredRun: one row of a table of measured training runs, as specs that the cost model can
// price.
//
// All sources share one schema; docs/accuracy.md lists the columns and their defaults. A column
// that is absent or empty gets its default, and the run records which defaults it uses.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "copus/base/csv.h"
#include "copus/base/result.h"
#include "copus/spec/cluster_spec.h"
#include "copus/spec/model_spec.h"
#include "copus/spec/parallel_plan.h"

namespace copus {

struct MeasuredRun {
  std::string id, source, framework;
  std::string where;  // file and line
  ModelSpec model;
  ClusterSpec cluster;
  ParallelPlan plan;
  Precision precision = Precision::kBf16;
  std::int64_t seq_len = 1;
  std::int64_t global_batch = 1;

  bool failed = false;  // somebody tried the run, and it failed
  std::optional<Seconds> step_time;
  std::optional<Bytes> peak_memory;

  bool states_dropout = false;       // the row has a value in its column `dropout`
  bool states_recompute = false;     // the same for `recompute`
  std::vector<std::string> assumed;  // the defaults that the run uses: "vocab=51200", …
  std::string problem;               // why the run cannot be priced; empty: it can be
};

// The rows of a file as runs, with the table itself.
struct MeasuredFile {
  std::string path;
  CsvTable table;
  std::vector<MeasuredRun> runs;  // in the order of table.rows
};

// Reads a table. A cell with a wrong value, such as text in a column of numbers, is an error. So is
// a table that lacks a column without a default, or has a column that the schema does not know. If
// a row is well-formed but cannot be priced (an unknown GPU or precision, an invalid plan), its
// `problem` says why.
Result<MeasuredFile> read_measured(const std::string& path);
Result<MeasuredFile> measured_from_csv(CsvTable table, const std::string& where);

}  // namespace copus
