// How far predictions of such jobs are off: the spreads of catalog/spreads.json, measured on public
// runs. A job unlike any of these runs is an extrapolation, which has a wider spread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "copus/base/result.h"
#include "copus/cost/framework.h"

namespace copus {

struct Spread {
  double time = 0;        // typical error of a step time, as a share
  double order = 0;       // typical error of the ratio of two plans' step times
  std::int64_t runs = 0;  // that were compared; 0: none is like this job
  std::string runs_of;    // the framework of these runs: the job's own, or its analogy
  // Of what fewer than four runs were compared: "Megatron-LM on B200", "Megatron-LM in fp8 on
  // A100-80GB-SXM", "DeepSpeed".
  std::vector<std::string> unseen;
};

// A framework with runs, but not with these, takes those of its analogy. An extrapolation has the
// widest spread of the framework's and its analogy's runs, and at least that of "unseen".
Result<Spread> prediction_spread(const FrameworkProfile& framework, const std::string& gpu,
                                 Precision precision);

}  // namespace copus
