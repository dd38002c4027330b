// Where a step's time goes.
#pragma once

#include <array>
#include <string_view>

#include "copus/base/units.h"

namespace copus {

// On the busiest pipeline rank. The parts add up to the step.
struct StepBreakdown {
  Seconds compute;    // forward and backward operators
  Seconds recompute;  // forward work repeated
  Seconds tp;         // exposed tensor-parallel communication
  Seconds cp;
  Seconds ep;
  Seconds pipeline;  // bubble, imbalance and exposed stage-to-stage messages
  Seconds dp;        // exposed gradient reduction and weight gathering, tied embeddings included
  Seconds optimizer;
  Seconds overhead;  // fixed cost of a step

  constexpr Seconds total() const {
    return compute + recompute + tp + cp + ep + pipeline + dp + optimizer + overhead;
  }
};

// One part, and what it is called.
struct StepPart {
  char letter;             // in a bar
  std::string_view name;   // in a table, and in JSON with "_s" behind it
  std::string_view text;   // in a legend
  std::string_view cause;  // of what makes one plan faster than another; empty: not named
  Seconds StepBreakdown::*time;
};

// All of them, in the order in which they are shown.
constexpr std::array<StepPart, 9> kStepParts = {{
    {'C', "compute", "compute", "compute", &StepBreakdown::compute},
    {'R', "recompute", "recompute", "recompute", &StepBreakdown::recompute},
    {'T', "tp_comm", "tensor-parallel", "tensor-parallel traffic", &StepBreakdown::tp},
    {'X', "cp_comm", "context-parallel", "context-parallel traffic", &StepBreakdown::cp},
    {'E', "ep_comm", "expert-parallel", "expert traffic", &StepBreakdown::ep},
    {'P', "pipeline", "pipeline bubble", "pipeline bubble", &StepBreakdown::pipeline},
    {'D', "dp_comm", "data-parallel", "data-parallel traffic", &StepBreakdown::dp},
    {'O', "optimizer", "optimizer", "optimizer", &StepBreakdown::optimizer},
    {'.', "overhead", "fixed", "", &StepBreakdown::overhead},
}};

}  // namespace copus
