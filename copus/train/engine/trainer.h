// Trainer: one rank's part of a training run. It runs one step at a time.
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

// Returns how many steps there are between two steps that take norms, after so many updates.
std::int64_t noise_interval(const TrainerOptions& options, std::int64_t updates);

// The gradient norms of one step, from which the noise scale is estimated.
struct NoiseNorms {
  SquaredNorm first;             // of the step's first samples, the same ones at every layout
  SquaredNorm global;            // of the whole batch
  std::vector<SquaredNorm> all;  // of the replicas' prefixes, of the replicas, of the whole batch
  // Norms of the watched scales alone: of single samples, and of the whole batch. Empty with
  // sequence parallelism.
  std::vector<SquaredNorm> scales;
};

// Adds two hashes: adds their upper and their lower halves, each modulo 2^32.
std::uint64_t add_hashes(std::uint64_t a, std::uint64_t b);

struct StepResult {
  double loss = 0;
  double grad_norm = 0;
  double lr = 0;
  double asked_to_stop = 0;  // how many ranks passed `stop`
  // How this rank spent its time. pp_wait is both the bubble and the transfer of messages.
  Seconds total, tp_wait, pp_wait, dp_wait, optimizer;
  Seconds sync_wait;                // wait for the slowest rank, at the one message of all ranks
  std::optional<NoiseNorms> norms;  // empty if none were taken, or of fewer than two batch sizes
  // Sum of the hashes of the step's samples (place and tokens). It is the same at every layout.
  std::uint64_t data_hash = 0;
  // If not empty, the loss or a gradient was NaN or infinite, and this says where. No weight was
  // changed.
  std::string not_finite;
  // If not empty, the step was finite, but the judge rejected it for this reason. No weight was
  // changed.
  std::string spike;
  bool is_bad() const { return !not_finite.empty() || !spike.empty(); }
};

class Trainer {
 public:
  // All ranks call this with the same options. REQUIRES: the plan is valid for the model.
  static Result<std::unique_ptr<Trainer>> create(GroupCache& groups, const TrainerOptions& options);

  // Makes a trainer with the weights and optimizer state of `layout`. It was created as kUnset, and
  // the caller has filled it with the state after so many updates.
  static std::unique_ptr<Trainer> with(const TrainerOptions& options,
                                       std::unique_ptr<Layout> layout, std::int64_t updates);

  // Trains on samples [consumed, consumed + global_batch). `stop`: this rank asks the run to stop.
  Result<StepResult> step(const Dataset& data, std::int64_t consumed, bool stop = false);
  // Returns the mean loss over the first `samples` held-out sequences, or over all if there are
  // fewer. They are the same at every layout. Returns nothing if `stop` was set on some rank before
  // the end of the evaluation.
  Result<std::optional<double>> evaluate(const Dataset& data, std::int64_t samples,
                                         const std::atomic<bool>& stop);

  // Goes on with another layout that holds the same state (created as kUnset, then filled). Frees
  // the old layout before it moves the new one to the device. All ranks call this between two
  // steps.
  void adopt(const TrainerOptions& options, std::unique_ptr<Layout> layout);
  // Goes on with a plan of the same placement. On an error nothing has changed.
  Result<void> reshape(const TrainerOptions& options);

  // Sets a function that is called before each update, on every rank with the same loss and
  // gradient norm. It returns why the step must not change the weights, or "".
  void set_judge(std::function<std::string(double loss, double grad_norm)> judge) {
    judge_ = std::move(judge);
  }

  // Frees weights and optimizer state before another trainer replaces this one. Afterwards, only
  // the destructor may be called.
  void free_state() {
    before_change();
    layout_.reset();
  }

  // Sets a function that is called before weights or optimizer state change or are freed. It
  // returns when no background thread reads them any more.
  void set_before_change(std::function<void()> wait) { before_change_ = std::move(wait); }

  // Waits until no background thread reads weights or optimizer state.
  void before_change() const {
    if (before_change_) before_change_();
  }

  const TrainerOptions& options() const { return options_; }
  std::int64_t updates() const { return updates_; }  // number of Adam's updates so far
  const Layout& layout() const { return *layout_; }
  const Mesh& mesh() const { return layout_->mesh; }
  const std::vector<std::unique_ptr<ChunkParameters>>& parameters() const {
    return layout_->parameters;
  }

 private:
  explicit Trainer(const TrainerOptions& options) : options_(options) {}
  enum class Part { kTraining, kHeldOut };
  // Returns `micro_batches` micro-batches of `rows` sequences for this replica. The samples of all
  // replicas start at `first`. Held-out samples from `end` on are replaced by held-out sample 0.
  // Adds the hash of each sample to `hash`.
  Result<std::vector<MicroBatch>> load(const Dataset& data, Part part, std::int64_t first,
                                       std::int64_t micro_batches, std::int64_t rows,
                                       std::int64_t end = 0, std::uint64_t* hash = nullptr) const;

  // The parts of a step, in their order.
  struct StepWork;
  StepWork plan_step() const;
  // Returns the losses of this replica's micro-batches on the last stage; elsewhere empty.
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
