// The parameters of the cost model that a calibration may turn: each a field of a cluster file or
// of a framework's profile, with what is thought of it before any measurement.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "copus/cost/framework.h"
#include "copus/spec/cluster_spec.h"

namespace copus {

// Whose property it is: all runs with the same GPU, network or framework share one value. Tables do
// not name clusters: runs of one framework with the same GPUs and network rate count as of one.
enum class ParameterScope { kGpu, kNetwork, kFramework };

// What it has a bearing on.
enum class ParameterOf { kTime, kMemory };

struct Parameter {
  static constexpr double kNoPrior = -1;

  std::string name;  // as in a cluster file or in --assume
  ParameterOf of;
  ParameterScope scope;
  double low, high;  // in the name's unit
  // What would be thought of it of any GPU, network or framework; kNoPrior: what the catalog says,
  // because it was measured apart from training.
  double prior;
  // One standard deviation of the belief in a starting value: of its logarithm where `unit` is
  // 0, else in units of `unit` (for those that may be zero).
  double spread;
  double unit;
  double scale;  // of the field, per the name's unit
  std::function<double&(ClusterSpec&, CostOptions&)> field;
  // It shows only where it is large enough to matter: a search for it has to begin above.
  bool is_floor = false;
  // Where a field of 0 is no value but stands for a default, that default: a search begins with it
  // and does not come near 0.
  std::function<double(const CostOptions&)> when_zero = {};
};

const std::vector<Parameter>& calibration_parameters();

// "A100" of A100-40GB-SXM and A100-80GB-SXM: cards that differ in memory size share kernels.
std::string gpu_family(std::string_view gpu);
// Whose value of a parameter a run has.
std::string scope_key(ParameterScope scope, const ClusterSpec& cluster,
                      const FrameworkProfile& profile);

}  // namespace copus
