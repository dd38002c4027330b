// What `copus plan` prints: the table of plans, and the lines below it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/copus/common.h"
#include "copus/cost/spread.h"
#include "copus/tuner/neighbours.h"
#include "copus/tuner/search.h"

namespace copus {

// What the user wants to know of the whole training run.
struct RunQuestion {
  double tokens = 0;  // 0: not asked
  double price = 0;   // per GPU-hour; 0: not stated
  bool asked() const { return tokens > 0 || price > 0; }
};

// The rows of a table of plans. `label` is the title of the first column.
class PlanTable {
 public:
  PlanTable(const char* label, const char* layout, const RunQuestion& run);
  void add(std::string label, const StepModel& model, const RankedPlan& entry);
  void add_empty(std::string label, const std::string& why);
  void mark_last();  // puts a star before the last row's label
  // Prints the table as wide as the terminal. If the terminal is too narrow, the table leaves out
  // the bar first, then the columns that follow from the step's time, then the memory. Returns
  // whether it printed the bar, with its legend below.
  bool print() const;

 private:
  RunQuestion run_;
  std::vector<std::string> titles_;
  std::vector<std::vector<std::string>> rows_;
};

// The answer of a search, for print_search() and search_to_json().
struct PlanAnswer {
  SearchResult found;
  std::optional<RankedPlan> usual;
  Spread spread;
  std::optional<BetterBatch> better;
};

void print_search(const Workload& job, const StepModel& model, const PlanAnswer& answer,
                  const RunQuestion& run);
Json search_to_json(const Workload& job, const StepModel& model, const PlanAnswer& answer,
                    const RunQuestion& run);
Json entry_to_json(const StepModel& model, const RankedPlan& entry, const RunQuestion& run);

extern const char* const kCutByWork;

}  // namespace copus
