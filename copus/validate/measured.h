// MeasuredRun: one row of a table of training runs that somebody measured, as specs that the cost
// model can price.
//
// One schema for all sources: docs/accuracy.md lists the columns. A column that is absent or empty
// has a stated default, and the run remembers which were used.
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

  bool failed = false;  // it was tried, and did not run
  std::optional<Seconds> step_time;
  std::optional<Bytes> peak_memory;

  std::vector<std::string> assumed;  // "vocab=51200", …
  std::string problem;               // why it cannot be priced; empty: it can
};

// A file's rows, with the table that they came from.
struct MeasuredFile {
  std::string path;
  CsvTable table;
  std::vector<MeasuredRun> runs;      // as table.rows
  std::vector<std::string> not_read;  // columns that say nothing here
};

// A cell that is no number, or a table without a column that has no default, is an error. A run
// that is well-formed but cannot be priced (an unknown GPU, a plan that is none) says so in
// `problem`.
Result<MeasuredFile> read_measured(const std::string& path);
Result<MeasuredFile> measured_from_csv(CsvTable table, const std::string& where);

}  // namespace copus
