#include "copus/train/run/machine.h"

#include <gtest/gtest.h>

#include <cmath>

#include "copus/train/model/test_models.h"

namespace copus {
namespace {

constexpr std::int64_t kLength = 16;
constexpr std::int64_t kRows[2] = {1, 4};

LayoutOptions run_on_cpus() {
  LayoutOptions run;
  run.model = testing_models::llama();
  run.seq_len = kLength;
  return run;
}

// Returns a machine with these rates and this launch time of an operator.
ClusterSpec machine(double gigaflops, double gigabytes_per_second, Seconds launch) {
  ClusterSpec cluster = ranks_as_cluster(1, 1);
  GpuSpec& core = cluster.gpu;
  core.peak_fp32 = core.peak_bf16 = core.peak_fp16 = FlopsPerSec(gigaflops * 1e9);
  core.memory_bandwidth = gigabytes_per_s(gigabytes_per_second);
  core.efficiency.matmul = core.efficiency.memory = 1;
  core.efficiency.matmul_half_m = core.efficiency.matmul_half_n = core.efficiency.matmul_half_k = 8;
  core.efficiency.launch = launch;
  return cluster;
}

Seconds layer_on(const ClusterSpec& cluster, std::int64_t rows) {
  return predicted_layer(cluster, run_on_cpus(), rows, kLength);
}

TEST(Calibrate, ALayerIsPredictedToTakeWhatWasMeasuredAtBothSizes) {
  int machines = 0;
  for (const double slowness : {0.5, 1.0, 7.0}) {
    for (const Seconds launch : {Seconds(0), microseconds(0.1), microseconds(20)}) {
      const ClusterSpec truth = machine(40 / slowness, 10 / slowness, launch);
      const Seconds measured[2] = {layer_on(truth, kRows[0]), layer_on(truth, kRows[1])};
      if (measured[1] - measured[0] < 0.2 * measured[1]) continue;  // the next test covers these
      ++machines;
      ClusterSpec calibrated = machine(40, 10, microseconds(3));
      calibrate(calibrated, run_on_cpus(), kLength, measured, kRows);
      for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_NEAR(layer_on(calibrated, kRows[i]) / measured[i], 1, 1e-9)
            << slowness << " " << launch.v;
      }
      EXPECT_NEAR(calibrated.gpu.efficiency.launch.v, launch.v, 1e-12);
      EXPECT_NEAR(calibrated.gpu.peak_fp32 / truth.gpu.peak_fp32, 1, 1e-9);
      EXPECT_EQ(calibrated.gpu.peak_bf16, calibrated.gpu.peak_fp32)
          << "a CPU has the same rate in BF16";
    }
  }
  EXPECT_GE(machines, 5);
}

// Because of a disturbance, four times the rows took no longer, or even less time. The calibrated
// rates must still be possible.
TEST(Calibrate, TimesThatCannotBeGiveAMachineAllTheSame) {
  for (const double large : {0.5, 1.0, 1.05}) {
    ClusterSpec calibrated = machine(40, 10, Seconds(0));
    const Seconds measured[2] = {microseconds(100), large * microseconds(100)};
    calibrate(calibrated, run_on_cpus(), kLength, measured, kRows);
    const GpuSpec& core = calibrated.gpu;
    EXPECT_GT(core.peak_fp32.v, 0);
    EXPECT_TRUE(std::isfinite(core.peak_fp32.v));
    EXPECT_GT(core.memory_bandwidth.v, 0);
    EXPECT_GE(core.efficiency.launch, Seconds(0));
    EXPECT_GE(layer_on(calibrated, kRows[0]) / measured[0], 1 - 1e-9) << large;
  }
}

}  // namespace
}  // namespace copus
