// Trainer: one rank's part of a training run, a step at a time.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "copus/goodput/configuration.h"
#include "copus/goodput/noise_prefix.h"
#include "copus/goodput/noise_scale.h"
#include "copus/train/data/dataset.h"
#include "copus/train/engine/layout.h"
#include "copus/train/options/trainer_options.h"

namespace copus {

// Steps from one taking of norms to the next, after so many updates.
std::int64_t noise_interval(const TrainerOptions& options, std::int64_t updates);

// What the noise scale is estimated from, in one step.
struct NoiseNorms {
  SquaredNorm first;             // of the step's first samples: the same ones at every layout
  SquaredNorm global;            // of all
  std::vector<SquaredNorm> all;  // every replica's prefix, every replica, all
  // Of the scales alone: every sample, and all together. Empty with sequence parallelism.
  std::vector<SquaredNorm> scales;
};

// Sum of two hashes: of their halves, each modulo 2^32.
std::uint64_t add_hashes(std::uint64_t a, std::uint64_t b);

struct StepResult {
  double loss = 0;
  double grad_norm = 0;
  double lr = 0;
  double asked_to_stop = 0;  // how many ranks passed `stop`
  // Where this rank's time went. Waiting for a pipeline message is the bubble and the transfer
  // together.
  Seconds total, tp_wait, pp_wait, dp_wait, optimizer;
  Seconds sync_wait;                // at the step's one message between all ranks: for the slowest
  std::optional<NoiseNorms> norms;  // where they were taken, and two batch sizes are there
  // Sum over the step's samples of a hash of each one's place and tokens: the same at every layout.
  std::uint64_t data_hash = 0;
  // Not empty: the loss or a gradient was NaN or infinite; says where. No weight was changed.
  std::string not_finite;
  // Not empty: what the judge had against the step, finite as it was. No weight was changed.
  std::string spike;
  bool is_bad() const { return !not_finite.empty() || !spike.empty(); }
};

class Trainer {
 public:
  // Every rank calls this with the same options. REQUIRES: the plan is valid for the model.
  static Result<std::unique_ptr<Trainer>> create(GroupCache& groups, const TrainerOptions& options);

  // A trainer with the weights and optimizer state of `layout`, which somebody has filled (kUnset)
  // after so many updates.
  static std::unique_ptr<Trainer> with(const TrainerOptions& options,
                                       std::unique_ptr<Layout> layout, std::int64_t updates);

  // Trains on samples [consumed, consumed + global_batch). Any rank may ask the run to stop.
  Result<StepResult> step(const Dataset& data, std::int64_t consumed, bool stop = false);
  // Mean loss over the first `samples` held-out sequences (all, where there are fewer): the same
  // ones at every layout.
  // Nothing where `stop` was set on some rank before it was over.
  Result<std::optional<double>> evaluate(const Dataset& data, std::int64_t samples,
                                         const std::atomic<bool>& stop);

  // Between two steps, on every rank alike: goes on with another layout, which holds the same state
  // (kUnset, filled). The old one is freed before the new one takes its place on the device.
  void adopt(const TrainerOptions& options, std::unique_ptr<Layout> layout);
  // Goes on with a plan of the same placement. On an error nothing has changed.
  Result<void> reshape(const TrainerOptions& options);

  // Asked before each update, on every rank with the same loss and gradient norm: why the step must
  // not change the weights, or nothing.
  void set_judge(std::function<std::string(double loss, double grad_norm)> judge) {
    judge_ = std::move(judge);
  }

  // Before another takes this one's place. Nothing but that may follow.
  void free_state() {
    before_change();
    layout_.reset();
  }

  // Called before weights or optimizer state change, or go elsewhere: who reads them in the
  // background is through when it returns.
  void set_before_change(std::function<void()> wait) { before_change_ = std::move(wait); }

  // Waits for whoever still reads weights or optimizer state.
  void before_change() const {
    if (before_change_) before_change_();
  }

  const TrainerOptions& options() const { return options_; }
  std::int64_t updates() const { return updates_; }  // of Adam, so far
  const Layout& layout() const { return *layout_; }
  const Mesh& mesh() const { return layout_->mesh; }
  const std::vector<std::unique_ptr<ChunkParameters>>& parameters() const {
    return layout_->parameters;
  }

 private:
  explicit Trainer(const TrainerOptions& options) : options_(options) {}
  enum class Part { kTraining, kHeldOut };
  // `micro_batches` of `rows` sequences for this replica, of a run of samples that starts at
  // `first` and is dp times as long. Held-out samples from `end` on are stood in for by the first.
  // `hash`: each sample's is added to it.
  Result<std::vector<MicroBatch>> load(const Dataset& data, Part part, std::int64_t first,
                                       std::int64_t micro_batches, std::int64_t rows,
                                       std::int64_t end = 0, std::uint64_t* hash = nullptr) const;

  // A step, in this order.
  struct StepWork;
  StepWork plan_step() const;
  // The losses of this replica's micro-batches, where they are known.
  Tensor compute_gradients(const StepWork& work, const std::vector<MicroBatch>& batches);
  Tensor sum_over_ranks(const StepWork& work, const Tensor& losses, std::uint64_t hash,
                        bool stop) const;
  void read_sums(const StepWork& work, const Tensor& sums, StepResult& result) const;
  void update(StepResult& result);

  NoiseNorms noise_norms(std::int64_t prefix, double first_sum, double prefix_sum,
                         double replica_sum, double global) const;
  // Moves the groups' waiting times into `result`.
  void take_waits(StepResult& result) const;
  std::string find_not_finite(const Tensor& losses, std::int64_t first_sample) const;

  TrainerOptions options_;
  std::unique_ptr<Layout> layout_;
  std::function<std::string(double, double)> judge_;
  std::function<void()> before_change_;
  std::int64_t updates_ = 0;
};

}  // namespace copus
