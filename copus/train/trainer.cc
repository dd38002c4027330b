#include "copus/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace copus {
namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

Error untrainable(const char* field, const std::string& value, const char* want) {
  return make_error("{}: got {}; want {} (the engine does not train this yet)", field, value, want);
}

}  // namespace

Result<void> check_trainable(const TrainerOptions& o) {
  const ModelSpec& m = o.model;
  const ParallelPlan& p = o.plan;
  if (m.is_moe()) return untrainable("model", m.name + ", a mixture of experts", "a dense model");
  if (m.mla.enabled) return untrainable("model", m.name + ", with latent attention", "GQA or MHA");
  if (m.rope_scaling.kind == RopeScaling::kOther) {
    return untrainable("model: rope_scaling", m.rope_scaling.other, "none, linear or llama3");
  }
  if (m.sliding_window > 0 && m.sliding_window < o.seq_len) {
    return untrainable("model: sliding_window", std::to_string(m.sliding_window),
                       "a window as long as --seq-len");
  }
  if (p.cp > 1) return untrainable("cp", std::to_string(p.cp), "1");
  if (p.ep > 1) return untrainable("ep", std::to_string(p.ep), "1");
  if (p.zero > 1) return untrainable("zero", std::to_string(p.zero), "0 or 1");
  if (p.schedule == ScheduleKind::kZeroBubble) {
    return untrainable("schedule", std::string(to_string(p.schedule)),
                       "1f1b, interleaved or gpipe");
  }
  if ((p.tp - 1) * ((m.vocab + p.tp - 1) / p.tp) >= m.vocab) {
    return untrainable("tp", std::to_string(p.tp),
                       "so few that each rank has part of the vocabulary");
  }
  return {};
}

Result<std::unique_ptr<Trainer>> Trainer::create(GroupCache& groups,
                                                 const TrainerOptions& options) {
  COPUS_TRY_VOID(check_trainable(options));
  std::unique_ptr<Trainer> trainer(new Trainer(options));
  const ParallelPlan& plan = options.plan;
  COPUS_TRY(trainer->mesh_, Mesh::create(groups, plan, options.model));
  COPUS_TRY(trainer->schedule_, make_schedule(plan.schedule, plan.pp, plan.vp,
                                              plan.micro_batches(options.global_batch)));
  if (plan.tp > 1) {
    trainer->partition_ =
        std::make_unique<TensorParallel>(*trainer->mesh_.tp, options.model.vocab, plan.sp);
  } else {
    trainer->partition_ = std::make_unique<Partition>();
  }
  const at::ScalarType dtype = options.compute == Compute::kBf16 ? at::kBFloat16 : at::kFloat;
  const BucketOptions bucket_options{.dtype = dtype,
                                     .device = options.device,
                                     .bucket_elements = options.bucket_elements,
                                     .seed = options.seed};
  std::vector<LocalChunk> local;
  for (std::int64_t i = 0; i < plan.vp; ++i) {
    const ChunkSpec chunk = chunk_spec(options.model, plan, trainer->mesh_.at.pp + i * plan.pp);
    trainer->parameters_.push_back(
        std::make_unique<ChunkParameters>(options.model, chunk, trainer->mesh_, bucket_options));
    trainer->chunks_.push_back(
        std::make_unique<ModelChunk>(options.model, chunk, trainer->parameters_.back()->values(),
                                     *trainer->partition_, plan.recompute, options.seq_len));
    local.push_back({trainer->chunks_.back().get(), trainer->parameters_.back().get()});
  }
  trainer->pipeline_ = std::make_unique<Pipeline>(
      trainer->mesh_, std::move(local),
      std::vector<std::int64_t>{plan.micro_batch,
                                trainer->partition_->positions(options.seq_len).second,
                                options.model.hidden},
      at::TensorOptions().dtype(dtype).device(options.device));
  return trainer;
}

// Replica r takes the r-th run of consecutive samples of the step. Only the ends of the pipeline
// need tokens.
Result<std::vector<MicroBatch>> Trainer::load(const Dataset& data, Part part, std::int64_t first,
                                              std::int64_t micro_batches, std::int64_t rows,
                                              std::int64_t end) const {
  std::vector<MicroBatch> batches(static_cast<std::size_t>(micro_batches));
  if (!mesh_.first_stage() && !mesh_.last_stage()) return batches;
  const std::int64_t length = options_.seq_len;
  std::int64_t sample = first + mesh_.at.dp * micro_batches * rows;
  const bool pinned = options_.device.is_cuda();
  for (MicroBatch& batch : batches) {
    const Tensor text =
        at::empty({rows, length + 1}, at::TensorOptions(at::kLong).pinned_memory(pinned));
    for (std::int64_t row = 0; row < rows; ++row, ++sample) {
      const std::span<std::int64_t> out(text.data_ptr<std::int64_t>() + row * (length + 1),
                                        static_cast<std::size_t>(length + 1));
      COPUS_TRY_VOID(part == Part::kTraining ? data.sample(sample, out)
                                             : data.eval_sample(sample < end ? sample : 0, out));
    }
    const Tensor there = text.to(options_.device, /*non_blocking=*/true);
    batch.tokens = there.narrow(1, 0, length).contiguous();
    batch.targets = there.narrow(1, 1, length).contiguous();
  }
  return batches;
}

Result<StepResult> Trainer::step(const Dataset& data, std::int64_t consumed, bool stop) {
  const auto begin = Clock::now();
  StepResult result;
  take_waits(result);  // those of an evaluation in between are no part of this step
  result = {};
  const std::int64_t micro_batches = options_.plan.micro_batches(options_.global_batch);
  COPUS_TRY(const std::vector<MicroBatch> batches,
            load(data, Part::kTraining, consumed, micro_batches, options_.plan.micro_batch));
  for (auto& parameters : parameters_) parameters->zero_gradients();
  const double weight = 1.0 / static_cast<double>(micro_batches * options_.plan.dp);
  const Tensor losses = pipeline_->train(schedule_, batches, weight);
  for (auto& parameters : parameters_) parameters->finish_reduction();

  // Loss, squared gradient norm and wishes to stop, summed over the ranks in one message. Each part
  // of the gradient is counted once: replicas hold the same, unless optimizer state is sharded.
  const Tensor sums =
      at::zeros({3}, at::TensorOptions().dtype(at::kDouble).device(options_.device));
  if (mesh_.last_stage() && mesh_.at.tp == 0) sums[0].copy_(losses.sum() * weight);
  if (options_.plan.zero >= 1 || mesh_.at.dp == 0) {
    for (const auto& parameters : parameters_) sums[1].add_(parameters->squared_norm());
  }
  if (stop) sums[2].fill_(1);
  mesh_.world->start_all_reduce(sums).wait_on_host();
  const Tensor on_host = sums.cpu();
  result.loss = on_host[0].item<double>();
  result.grad_norm = std::sqrt(on_host[1].item<double>());
  result.asked_to_stop = on_host[2].item<double>();
  result.lr = learning_rate(options_.lr, consumed + options_.global_batch);
  if (!std::isfinite(result.loss) || !std::isfinite(result.grad_norm)) {
    result.not_finite = find_not_finite(losses, consumed);
    return result;
  }

  const auto optimizer_begin = Clock::now();
  ++updates_;
  const double scale = options_.clip_norm > 0 && result.grad_norm > options_.clip_norm
                           ? options_.clip_norm / (result.grad_norm + 1e-6)
                           : 1.0;
  for (auto& parameters : parameters_) {
    for (const Bucket& bucket : parameters->buckets()) {
      adamw_update(options_.adam, result.lr, bucket.decay ? options_.adam.weight_decay : 0.0,
                   updates_, scale, bucket.master, bucket.owned_gradients(), bucket.moment1,
                   bucket.moment2);
    }
  }
  result.optimizer_s = since(optimizer_begin);
  for (auto& parameters : parameters_) parameters->publish_values();

  take_waits(result);
  result.total_s = since(begin);
  return result;
}

void Trainer::take_waits(StepResult& result) const {
  result.sync_wait_s = mesh_.world->take_waited_s();
  result.tp_wait_s = mesh_.tp->take_waited_s() + mesh_.kv->take_waited_s();
  result.dp_wait_s = mesh_.dp->take_waited_s();
  result.pp_wait_s = 0;
  for (const Comm* group : {mesh_.next_forward, mesh_.previous_forward, mesh_.next_backward,
                            mesh_.previous_backward, mesh_.tied}) {
    if (group != nullptr) result.pp_wait_s += group->take_waited_s();
  }
}

// Passes of whole micro-batches as long as all replicas have one, then of one sequence each; a
// replica that has none left repeats the first sequence with no weight.
Result<double> Trainer::evaluate(const Dataset& data, std::int64_t samples) {
  const std::int64_t end = std::min(samples, data.eval_samples());
  if (end < 1) return make_error("held-out data: got no sequence; want --held-out above 0");
  constexpr std::int64_t kPassesAtOnce = 16;  // so many are in memory
  const std::int64_t dp = options_.plan.dp;
  const Tensor sum = at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(options_.device));
  for (std::int64_t first = 0; first < end;) {
    std::int64_t rows = options_.plan.micro_batch;
    if (first + dp * rows > end) rows = 1;
    const std::int64_t passes = std::min(
        kPassesAtOnce, rows == 1 ? (end - first + dp - 1) / dp : (end - first) / (dp * rows));
    COPUS_TRY(const std::vector<MicroBatch> batches,
              load(data, Part::kHeldOut, first, passes, rows, end));
    const Tensor losses = pipeline_->evaluate(batches, rows);
    if (mesh_.last_stage() && mesh_.at.tp == 0) {
      // Of this replica's samples, those before the end count.
      const std::int64_t mine = first + mesh_.at.dp * passes * rows;
      const std::int64_t real = std::clamp<std::int64_t>((end - mine) / rows, 0, passes);
      sum.add_(losses.narrow(0, 0, real).sum() * static_cast<double>(rows));
    }
    first += dp * passes * rows;
  }
  mesh_.world->all_reduce(sum);
  return sum.item<double>() / static_cast<double>(end);
}

// Looks for the first cause on every rank: a weight, a sample's loss, a gradient, in that order.
std::string Trainer::find_not_finite(const Tensor& losses, std::int64_t first_sample) const {
  const auto finite = [](const Tensor& x) { return at::isfinite(x).all().item<bool>(); };
  std::string found[3];
  for (const auto& parameters : parameters_) {
    for (const Bucket& bucket : parameters->buckets()) {
      for (const PlacedTensor& tensor : bucket.tensors) {
        if (found[0].empty() && !finite(bucket.values.narrow(0, tensor.offset, tensor.size))) {
          found[0] = fmt::format("weight {}", tensor.spec.name);
        }
        if (found[2].empty() && !finite(bucket.gradients.narrow(0, tensor.offset, tensor.size))) {
          found[2] = fmt::format("gradient of {}", tensor.spec.name);
        }
      }
    }
  }
  const std::int64_t rows = options_.plan.micro_batch;
  for (std::int64_t i = 0; i < losses.numel() && found[1].empty(); ++i) {
    if (finite(losses[i])) continue;
    const std::int64_t sample = first_sample + (mesh_.at.dp * losses.numel() + i) * rows;
    found[1] = rows == 1 ? fmt::format("loss of sample {}", sample)
                         : fmt::format("loss of samples {} to {}", sample, sample + rows - 1);
  }
  // Every rank's finding as a fixed number of bytes: the most basic cause wins, then the lowest
  // rank.
  constexpr std::int64_t kBytes = 256;
  const std::int64_t world = mesh_.world->size();
  const Tensor mine = at::zeros({kBytes}, at::kLong);
  for (int kind = 0; kind < 3; ++kind) {
    if (found[kind].empty()) continue;
    const std::string text =
        fmt::format("{}{} is not finite on rank {}", kind, found[kind], mesh_.rank);
    for (std::size_t i = 0; i < text.size() && i < kBytes - 1; ++i) {
      mine[static_cast<std::int64_t>(i)] = static_cast<std::int64_t>(text[i]);
    }
    break;
  }
  Tensor all = at::zeros({world, kBytes}, at::TensorOptions(at::kLong).device(options_.device));
  mesh_.world->all_gather(all, mine.to(options_.device));
  all = all.cpu();
  std::string first;
  for (std::int64_t r = 0; r < world; ++r) {
    std::string text;
    for (std::int64_t i = 0; i < kBytes && all[r][i].item<std::int64_t>() != 0; ++i) {
      text.push_back(static_cast<char>(all[r][i].item<std::int64_t>()));
    }
    if (!text.empty() && (first.empty() || text[0] < first[0])) first = text;
  }
  return first.empty() ? "the sum of finite losses or gradients is not finite" : first.substr(1);
}

}  // namespace copus
