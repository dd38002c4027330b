#include "copus/train/engine/trainer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include "copus/base/hash.h"
#include "copus/base/seconds_since.h"
#include "copus/goodput/efficiency.h"
#include "copus/train/comm/agree.h"
#include "copus/train/device/device.h"
#include "copus/train/engine/adamw.h"

namespace copus {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

Result<std::unique_ptr<Trainer>> Trainer::create(GroupCache& groups,
                                                 const TrainerOptions& options) {
  COPUS_TRY_VOID(check_trainable(options));
  std::unique_ptr<Trainer> trainer(new Trainer(options));
  COPUS_TRY(trainer->layout_, Layout::create(groups, options, ParameterStart::kInitial));
  return trainer;
}

std::unique_ptr<Trainer> Trainer::with(const TrainerOptions& options,
                                       std::unique_ptr<Layout> layout, std::int64_t updates) {
  std::unique_ptr<Trainer> trainer(new Trainer(options));
  trainer->adopt(options, std::move(layout));
  trainer->updates_ = updates;
  return trainer;
}

void Trainer::adopt(const TrainerOptions& options, std::unique_ptr<Layout> layout) {
  layout_.reset();
  give_back_memory(options.device);
  layout->settle(options);
  layout_ = std::move(layout);
  options_ = options;
}

Result<void> Trainer::reshape(const TrainerOptions& options) {
  COPUS_TRY_VOID(layout_->reshape(options));
  options_ = options;
  return {};
}

// A norm reads each gradient once, and a step does about six operations per weight and token. So
// the share of a norm in the step's time falls with the number of tokens of a replica
// (bench/noise_bench.cc measures it).
std::int64_t noise_interval(const TrainerOptions& options, std::int64_t updates) {
  if (options.noise_every > 0) return options.noise_every;
  const std::int64_t enough = options.device.is_cuda() ? 65536 : 32768;
  const std::int64_t tokens = options.global_batch / options.plan.dp * options.seq_len;
  std::int64_t steps = 1;
  // Takes norms more often in the first updates, so that the noise scale is known early. Not with
  // tensor parallelism, where a norm costs twice as much.
  const bool early = updates < 256 && options.plan.tp == 1;
  const std::int64_t seldom = options.device.is_cuda() || early ? 4 : 8;
  while (steps < seldom && steps * tokens < enough) steps *= 2;
  // If both ends of the pipeline share the embedding, a norm needs one more sum of its gradient.
  const bool shared_ends = options.model.tied_embeddings && options.plan.pp > 1;
  return shared_ends ? std::min<std::int64_t>(4 * steps, 8) : steps;
}

namespace {

// Returns a hash of a sample's place in the run and of its tokens.
std::uint64_t sample_hash(std::int64_t index, std::span<const std::int64_t> tokens) {
  std::uint64_t hash = kNoHash ^ static_cast<std::uint64_t>(index);
  for (const std::int64_t token : tokens) {
    hash = add_to_hash(hash, static_cast<std::uint64_t>(token));
  }
  return hash;
}

}  // namespace

std::uint64_t add_hashes(std::uint64_t a, std::uint64_t b) {
  constexpr std::uint64_t kLow = 0xffffffffU;
  return ((a >> 32U) + (b >> 32U)) << 32U | (((a & kLow) + (b & kLow)) & kLow);
}

// Replica r takes the r-th run of consecutive samples of the step. Only the first and the last
// stage need tokens.
Result<std::vector<MicroBatch>> Trainer::load(const Dataset& data, Part part, std::int64_t first,
                                              std::int64_t micro_batches, std::int64_t rows,
                                              std::int64_t end, std::uint64_t* hash) const {
  const Activity::Scope reads(mesh().world->activity(), Doing::kReadingData);
  std::vector<MicroBatch> batches(static_cast<std::size_t>(micro_batches));
  if (!mesh().first_stage() && !mesh().last_stage()) return batches;
  const std::int64_t length = options_.seq_len;
  std::int64_t sample = first + mesh().at.dp * micro_batches * rows;
  const bool pinned = options_.device.is_cuda();
  for (MicroBatch& batch : batches) {
    const Tensor text =
        at::empty({rows, length + 1}, at::TensorOptions(at::kLong).pinned_memory(pinned));
    for (std::int64_t row = 0; row < rows; ++row, ++sample) {
      const std::span<std::int64_t> out(text.data_ptr<std::int64_t>() + row * (length + 1),
                                        static_cast<std::size_t>(length + 1));
      COPUS_TRY_VOID(part == Part::kTraining ? data.sample(sample, out)
                                             : data.eval_sample(sample < end ? sample : 0, out));
      if (hash != nullptr) *hash = add_hashes(*hash, sample_hash(sample, out));
    }
    const Tensor there = text.to(torch_device(options_.device), /*non_blocking=*/true);
    batch.tokens = there.narrow(1, 0, length).contiguous();
    batch.targets = there.narrow(1, 1, length).contiguous();
  }
  return batches;
}

// One step's micro-batches, and which norms of their gradients are taken for the noise scale.
struct Trainer::StepWork {
  std::int64_t micro_batches = 1;  // of each replica
  double weight = 1;               // of a micro-batch's loss in the mean
  std::int64_t prefix = 0;         // the norm of so many first micro-batches is taken; 0: no norms
  bool replica_norm = false;       // the norm of a replica's own gradient is taken
  std::int64_t watched = 0;        // the norms of single samples are taken in so many micro-batches
};

Trainer::StepWork Trainer::plan_step() const {
  StepWork work;
  const std::int64_t dp = options_.plan.dp;
  work.micro_batches = options_.plan.micro_batches(options_.global_batch);
  work.weight = 1.0 / static_cast<double>(work.micro_batches * dp);
  const bool measures = updates_ % noise_interval(options_, updates_) == 0;
  work.prefix = measures ? noise_prefix(options_.plan, options_.global_batch) : 0;
  work.replica_norm = work.prefix > 0 && dp > 1;
  // A few samples of each replica are enough, and cost almost nothing.
  const std::int64_t few = options_.device.is_cuda() ? 8 : 4;
  if (work.prefix > 0 && !options_.plan.sp) {
    work.watched = std::clamp<std::int64_t>(few / options_.plan.micro_batch, 1, work.micro_batches);
  }
  return work;
}

Result<StepResult> Trainer::step(const Dataset& data, std::int64_t consumed, bool stop) {
  const auto begin = Clock::now();
  StepResult result;
  take_waits(result);  // drops waits that are not part of this step, such as an evaluation's
  result = {};
  const StepWork work = plan_step();
  std::uint64_t hash = 0;
  COPUS_TRY(const std::vector<MicroBatch> batches,
            load(data, Part::kTraining, consumed, work.micro_batches, options_.plan.micro_batch, 0,
                 &hash));
  const Tensor losses = compute_gradients(work, batches);
  read_sums(work, sum_over_ranks(work, losses, hash, stop), result);
  result.lr = learning_rate(options_.lr, consumed + options_.global_batch);
  if (options_.base_batch > 0) {
    result.lr *= learning_rate_factor(static_cast<double>(options_.global_batch),
                                      static_cast<double>(options_.base_batch));
  }
  const std::string against = judge_ ? judge_(result.loss, result.grad_norm) : "";
  if (!std::isfinite(result.loss) || !std::isfinite(result.grad_norm)) {
    result.not_finite = find_not_finite(losses, consumed);
    return result;
  }
  if (!against.empty()) {
    result.spike = against;
    return result;
  }
  update(result);
  take_waits(result);
  result.total = seconds_since(begin);
  return result;
}

Tensor Trainer::compute_gradients(const StepWork& work, const std::vector<MicroBatch>& batches) {
  for (auto& own : parameters()) own->zero_gradients(work.replica_norm);
  ScaleTap& tap = layout_->tap;
  tap.micro_batches = mesh().at.tp == 0 ? work.watched : 0;
  tap.squares =
      at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(torch_device(options_.device)));
  Tensor losses = layout_->pipeline->train(layout_->schedule, batches, work.weight,
                                           work.prefix < work.micro_batches ? work.prefix : 0);
  for (auto& own : parameters()) own->finish_reduction();
  return losses;
}

namespace {

// The values that are summed over the ranks in a step.
enum Sum : std::int64_t {
  kLoss,
  kNorm,
  kStop,
  kFirst,
  kPrefix,
  kReplica,
  kSampleScales,
  kScales,
  kHashLow,
  kHashHigh,
  kSums
};

}  // namespace

// Computes all sums over ranks in one message. Each part of the gradient is counted once: without
// ZeRO-1 all replicas hold the same gradient, so only the first counts it.
Tensor Trainer::sum_over_ranks(const StepWork& work, const Tensor& losses, std::uint64_t hash,
                               bool stop) const {
  const Tensor sums = at::zeros(
      {kSums}, at::TensorOptions().dtype(at::kDouble).device(torch_device(options_.device)));
  if (mesh().last_stage() && mesh().at.tp == 0) sums[kLoss].copy_(losses.sum() * work.weight);
  for (const auto& own : parameters()) {
    if (options_.plan.zero >= 1 || mesh().at.dp == 0) {
      sums[kNorm].add_(own->squared_norm());
      if (work.watched > 0) sums[kScales].add_(own->scales_squared_norm());
    }
    if (work.replica_norm) sums[kReplica].add_(own->take_replica_norm());
    if (work.prefix > 0 && work.prefix < work.micro_batches) {
      sums[kPrefix].add_(own->take_prefix_norm());
    }
  }
  if (work.prefix == work.micro_batches) sums[kPrefix].copy_(sums[kReplica]);
  if (mesh().at.dp == 0) sums[kFirst].copy_(sums[kPrefix]);
  sums[kSampleScales].copy_(layout_->tap.squares);
  if (stop) sums[kStop].fill_(1);
  if (mesh().first_stage() && mesh().at.tp == 0) {
    // The hash is summed in two halves, because sums of 32-bit halves are exact in a double.
    sums[kHashLow].fill_(static_cast<double>(hash & 0xffffffffU));
    sums[kHashHigh].fill_(static_cast<double>(hash >> 32U));
  }
  mesh().world->start_all_reduce(sums).wait_on_host();
  return sums.cpu();
}

void Trainer::read_sums(const StepWork& work, const Tensor& sums, StepResult& result) const {
  const double* sum = sums.data_ptr<double>();
  result.loss = sum[kLoss];
  result.grad_norm = std::sqrt(sum[kNorm]);
  result.asked_to_stop = sum[kStop];
  const auto low_half = [](double x) {
    return static_cast<std::uint64_t>(std::fmod(x, 4294967296.0));
  };
  result.data_hash = low_half(sum[kHashHigh]) << 32U | low_half(sum[kHashLow]);
  if (work.prefix == 0) return;
  result.norms = noise_norms(work.prefix, sum[kFirst], sum[kPrefix], sum[kReplica], sum[kNorm]);
  if (work.watched == 0) return;
  // The loss is a mean over all samples. So a sample's own gradient is `samples` times as large as
  // its part of the step's gradient.
  const auto samples = static_cast<double>(options_.global_batch);
  const auto count =
      static_cast<double>(work.watched * options_.plan.micro_batch * options_.plan.dp);
  result.norms->scales = {{1, sum[kSampleScales] * samples * samples / count, count},
                          {samples, sum[kScales], 1}};
}

void Trainer::update(StepResult& result) {
  before_change();
  const Activity::Scope updates(mesh().world->activity(), Doing::kOptimizer);
  const auto begin = Clock::now();
  ++updates_;
  const double scale = options_.clip_norm > 0 && result.grad_norm > options_.clip_norm
                           ? options_.clip_norm / (result.grad_norm + 1e-6)
                           : 1.0;
  for (auto& own : parameters()) {
    for (const Bucket& bucket : own->buckets()) {
      adamw_update(options_.adam, result.lr, bucket.decay ? options_.adam.weight_decay : 0.0,
                   updates_, scale, bucket.master, bucket.owned_gradients(), bucket.moment1,
                   bucket.moment2, bucket.owned_values());
    }
  }
  result.optimizer = seconds_since(begin);
  for (auto& own : parameters()) own->publish_values();
}

// The gradients in the buckets are sums over micro-batches, divided by the number of micro-batches
// of all replicas. So the mean over fewer micro-batches is larger by the ratio of both numbers.
NoiseNorms Trainer::noise_norms(std::int64_t prefix, double first_sum, double prefix_sum,
                                double replica_sum, double global) const {
  const auto dp = static_cast<double>(options_.plan.dp);
  const auto rows = static_cast<double>(options_.plan.micro_batch);
  const auto micro_batches =
      static_cast<double>(options_.plan.micro_batches(options_.global_batch));
  const auto square = [](double x) { return x * x; };
  const double of_prefix = square(dp * micro_batches / static_cast<double>(prefix));
  const double samples = rows * static_cast<double>(prefix);
  NoiseNorms norms;
  norms.first = {samples, first_sum * of_prefix, 1};
  norms.global = {rows * micro_batches * dp, global, 1};
  norms.all.push_back({samples, prefix_sum * of_prefix / dp, dp});
  if (options_.plan.dp > 1 && static_cast<double>(prefix) < micro_batches) {
    norms.all.push_back({rows * micro_batches, replica_sum * square(dp) / dp, dp});
  }
  norms.all.push_back(norms.global);
  return norms;
}

void Trainer::take_waits(StepResult& result) const {
  result.sync_wait = mesh().world->take_waited();
  result.tp_wait = mesh().tp->take_waited() + mesh().kv->take_waited();
  result.dp_wait = mesh().dp->take_waited();
  result.pp_wait = {};
  for (const Comm* group : {mesh().next_forward, mesh().previous_forward, mesh().next_backward,
                            mesh().previous_backward, mesh().tied}) {
    if (group != nullptr) result.pp_wait += group->take_waited();
  }
}

// Runs passes of whole micro-batches as long as there is one for every replica, then passes of one
// sequence. A replica without a sequence repeats the first one, whose loss is not counted.
Result<std::optional<double>> Trainer::evaluate(const Dataset& data, std::int64_t samples,
                                                const std::atomic<bool>& stop) {
  const std::int64_t end = std::min(samples, data.eval_samples());
  if (end < 1) return field_error("held-out data", "got no sequence; want --held-out above 0");
  constexpr std::int64_t kPassesAtOnce = 16;  // the data of so many passes is in memory
  const std::int64_t dp = options_.plan.dp;
  const Tensor sum =
      at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(torch_device(options_.device)));
  for (std::int64_t first = 0; first < end;) {
    const Tensor asked = at::full({}, stop.load() ? 1.0 : 0.0, sum.options());
    mesh().world->start_all_reduce(asked).wait_on_host();
    if (asked.item<double>() > 0) return std::optional<double>();
    std::int64_t rows = options_.plan.micro_batch;
    if (first + dp * rows > end) rows = 1;
    const std::int64_t passes = std::min(
        kPassesAtOnce, rows == 1 ? (end - first + dp - 1) / dp : (end - first) / (dp * rows));
    COPUS_TRY(const std::vector<MicroBatch> batches,
              load(data, Part::kHeldOut, first, passes, rows, end));
    const Tensor losses = layout_->pipeline->evaluate(batches, rows);
    if (mesh().last_stage() && mesh().at.tp == 0) {
      // Counts only this replica's samples before the end.
      const std::int64_t mine = first + mesh().at.dp * passes * rows;
      const std::int64_t real = std::clamp<std::int64_t>((end - mine) / rows, 0, passes);
      sum.add_(losses.narrow(0, 0, real).sum() * static_cast<double>(rows));
    }
    first += dp * passes * rows;
  }
  mesh().world->start_all_reduce(sum).wait_on_host();
  return std::optional(sum.item<double>() / static_cast<double>(end));
}

// Looks for the first cause on every rank. Returns the most basic kind of cause that any rank
// found, from the lowest rank that found it.
std::string Trainer::find_not_finite(const Tensor& losses, std::int64_t first_sample) const {
  enum Kind : int { kWeight, kSampleLoss, kGradient, kNone };  // the most basic first
  const auto finite = [](const Tensor& x) { return at::isfinite(x).all().item<bool>(); };
  std::array<std::string, kNone + 1> found;
  for (const auto& own : parameters()) {
    for (const Bucket& bucket : own->buckets()) {
      for (const PlacedTensor& tensor : bucket.tensors) {
        if (found[kWeight].empty() &&
            !finite(bucket.values.narrow(0, tensor.offset, tensor.size))) {
          found[kWeight] = fmt::format("weight {}", tensor.spec.name);
        }
        if (found[kGradient].empty() &&
            !finite(bucket.gradients.narrow(0, tensor.offset, tensor.size))) {
          found[kGradient] = fmt::format("gradient of {}", tensor.spec.name);
        }
      }
    }
  }
  const std::int64_t rows = options_.plan.micro_batch;
  for (std::int64_t i = 0; i < losses.numel() && found[kSampleLoss].empty(); ++i) {
    if (finite(losses[i])) continue;
    const std::int64_t sample = first_sample + (mesh().at.dp * losses.numel() + i) * rows;
    found[kSampleLoss] = rows == 1
                             ? fmt::format("loss of sample {}", sample)
                             : fmt::format("loss of samples {} to {}", sample, sample + rows - 1);
  }
  int kind = kWeight;
  while (kind < kNone && found[static_cast<std::size_t>(kind)].empty()) ++kind;
  const Comm& world = *mesh().world;
  const Tensor mine = at::full({1}, static_cast<std::int64_t>(kind) * world.size() + world.rank(),
                               at::TensorOptions(at::kLong).device(torch_device(options_.device)));
  const Tensor all = at::empty({world.size()}, mine.options());
  world.start_all_gather(all, mine).wait_on_host();
  const std::int64_t first = all.min().item<std::int64_t>();
  if (first / world.size() == kNone) return "the sum of finite losses or gradients is not finite";
  const int rank = static_cast<int>(first % world.size());
  return fmt::format("{} is not finite on rank {}",
                     from_rank(rank, world, options_.device, found[static_cast<std::size_t>(kind)]),
                     rank);
}

}  // namespace copus
