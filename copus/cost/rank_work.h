// The private types of StepModel, shared by its closed form (step.cc) and its timeline
// (predict.cc).
#pragma once

#include "copus/cost/step.h"

namespace copus {

// One micro-batch on one pipeline rank, all its chunks.
struct StepModel::RankWork {
  PieceCost cost;
  Seconds forward() const { return cost.forward.total(); }
  Seconds backward_input() const { return cost.backward_input.total() + cost.recompute.total(); }
  Seconds backward_weight() const { return cost.backward_weight.total(); }
  Seconds total() const { return forward() + backward_input() + backward_weight(); }
};

// What follows the pipeline on one rank.
struct StepModel::Finish {
  Seconds dp;
  Seconds optimizer;
};

}  // namespace copus
