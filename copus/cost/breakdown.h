// StepBreakdown: the time of one training step, part by part.
#pragma once

#include <array>
#include <string_view>

#include "copus/base/units.h"

namespace copus {

// The parts add up to the step. They are those of the slowest pipeline rank, except for dp and
// optimizer: these are of the rank where both together take longest.
struct StepBreakdown {
  Seconds compute;    // forward and backward operators
  Seconds recompute;  // repeated forward operators
  Seconds tp;         // exposed tensor-parallel communication
  Seconds cp;
  Seconds ep;
  Seconds pipeline;  // bubble, imbalance and exposed stage-to-stage messages
  Seconds dp;        // exposed gradient reduction and weight gathering, tied embeddings included
  Seconds optimizer;
  Seconds overhead;  // fixed cost of a step, and the wait for the slowest node

  constexpr Seconds total() const {
    return compute + recompute + tp + cp + ep + pipeline + dp + optimizer + overhead;
  }
};

// The names of one part of a StepBreakdown.
struct StepPart {
  char letter;             // in a plan's time bar
  std::string_view name;   // in a table; JSON keys add "_s"
  std::string_view text;   // in the bar's legend
  std::string_view cause;  // in a comparison of two plans; empty: comparisons leave the part out
  Seconds StepBreakdown::*time;
};

// All parts in the order in which Copus shows them.
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
