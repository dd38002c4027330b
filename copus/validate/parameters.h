// The parameters of the cost model that a calibration may change. Each is a field of a cluster file
// or of a framework's profile, with a prior belief: what is expected of it before any measurement.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "copus/cost/framework.h"
#include "copus/spec/cluster_spec.h"

namespace copus {

// What a parameter is a property of. All runs with the same GPU, network or framework share one
// value. Tables do not name clusters, so runs of one framework with the same GPUs and network rate
// count as runs on one network.
enum class ParameterScope { kGpu, kNetwork, kFramework };

// Whether a parameter affects the step time or the memory.
enum class ParameterOf { kTime, kMemory };

struct Parameter {
  static constexpr double kNoPrior = -1;

  std::string name;  // as in a cluster file or in --assume
  ParameterOf of;
  ParameterScope scope;
  double low, high;  // range, in the unit that the name states
  // The value that is expected for any GPU, network or framework. kNoPrior: the catalog's value,
  // because it was measured separately from training.
  double prior;
  // The standard deviation of the belief in the starting value. It applies to the logarithm of the
  // value if `unit` is 0. Otherwise it counts in units of `unit`, which suits values that may be 0.
  double spread;
  double unit;
  double scale;  // value of the field for 1 in the name's unit
  std::function<double&(ClusterSpec&, CostOptions&)> field;
  // The parameter is a lower bound on a time, so it has an effect only if it is large. The solver
  // therefore starts two spreads above the starting value.
  bool is_floor = false;
  // Set if a field of 0 stands for a default: returns that default. The solver starts there, and
  // `low` keeps it away from 0.
  std::function<double(const CostOptions&)> when_zero = {};
};

const std::vector<Parameter>& calibration_parameters();

// Sets a parameter, in the unit that its name states.
void set_parameter(const Parameter& parameter, double value, ClusterSpec& cluster,
                   FrameworkProfile& profile);

// Returns "A100" for A100-40GB-SXM and A100-80GB-SXM: cards that differ only in memory size share
// the parameters of their kernels.
std::string gpu_family(std::string_view gpu);
// Returns the key of the GPU, network or framework whose parameter values a run uses.
std::string scope_key(ParameterScope scope, const ClusterSpec& cluster,
                      const FrameworkProfile& profile);

}  // namespace copus
