#include "copus/train/engine/pipeline.h"

#include "copus/base/check.h"

namespace copus {

Pipeline::Pipeline(const Mesh& mesh, std::vector<LocalChunk> chunks,
                   std::vector<std::int64_t> activation, at::TensorOptions options)
    : mesh_(mesh),
      chunks_(std::move(chunks)),
      activation_(std::move(activation)),
      options_(options) {}

Pipeline::Inbox Pipeline::expect(const Action& action) {
  const ChunkSpec& spec = chunk(action.chunk).model->spec();
  const bool is_forward = action.kind == ActionKind::kForward;
  Inbox inbox;
  if (is_forward ? spec.embeds : spec.heads) return inbox;
  inbox.message = at::empty(activation_, options_);
  inbox.arrival = is_forward ? mesh_.previous_forward->start_receive(inbox.message, 0)
                             : mesh_.next_backward->start_receive(inbox.message, 1);
  return inbox;
}

void Pipeline::send(const Comm* group, const Tensor& tensor, int to) {
  sends_.push_back(group->start_send(tensor.contiguous(), to));
  // Limits the number of pending sends: otherwise every activation of the step would be kept. In
  // any schedule, a neighbour lags behind by fewer messages than the limit (pipeline_test.cc). So
  // the wait is short, and no rank waits for itself.
  if (sends_.size() > max_pending_sends(mesh_.plan.pp, mesh_.plan.vp)) {
    sends_.front().wait();
    sends_.pop_front();
  }
}

void Pipeline::forward(const Action& action, const MicroBatch& batch, Inbox& inbox) {
  const Activity::Scope doing(mesh_.world->activity(), Doing::kForward, action.micro_batch);
  const ModelChunk& model = *chunk(action.chunk).model;
  Passing pass;
  pass.input = model.spec().embeds ? batch.tokens : inbox.take().requires_grad_(true);
  pass.output = model.forward(pass.input);
  if (model.spec().heads) {
    pass.output = model.loss(pass.output, batch.targets);
    losses_.push_back(pass.output.detach());
  } else {
    send(mesh_.next_forward, pass.output.detach(), 1);
  }
  passing_[static_cast<std::size_t>(action.chunk / mesh_.plan.pp * micro_batches_ +
                                    action.micro_batch)] = std::move(pass);
}

void Pipeline::backward(const Action& action, double loss_weight, Inbox& inbox) {
  const Activity::Scope doing(mesh_.world->activity(), Doing::kBackward, action.micro_batch);
  LocalChunk& local = chunk(action.chunk);
  const auto slot = static_cast<std::size_t>(action.chunk / mesh_.plan.pp);
  if (--backward_left_[slot] == 0) local.parameters->reduce_when_ready();
  Passing pass = std::exchange(passing_[slot * static_cast<std::size_t>(micro_batches_) +
                                        static_cast<std::size_t>(action.micro_batch)],
                               Passing());
  const Tensor gradient =
      local.model->spec().heads ? at::full_like(pass.output, loss_weight) : inbox.take();
  torch::autograd::backward({pass.output}, {gradient});
  if (!local.model->spec().embeds) send(mesh_.previous_backward, pass.input.grad(), 0);
  // Every schedule runs a chunk's backward passes in the order of the micro-batches.
  if (prefix_ > 0 && backward_left_[slot] == micro_batches_ - prefix_) {
    local.parameters->note_prefix();
  }
}

void Pipeline::load_kernels(std::int64_t seq_len) {
  if (tap_ != nullptr) tap_->open = false;
  const at::AutoGradMode with_gradients(true);  // code that restores a state turns them off
  for (const LocalChunk& local : chunks_) {
    const ChunkSpec& spec = local.model->spec();
    local.parameters->zero_gradients(false);
    const Tensor tokens = at::zeros({activation_[0], seq_len}, options_.dtype(at::kLong));
    const Tensor input = spec.embeds ? tokens : at::zeros(activation_, options_).requires_grad_();
    Tensor output = local.model->forward(input);
    if (spec.heads) output = local.model->loss(output, tokens);
    torch::autograd::backward({output}, {at::zeros_like(output)});
    local.parameters->note_prefix();
  }
}

void Pipeline::finish_sends() {
  for (Pending& pending : sends_) pending.wait();
  sends_.clear();
}

Tensor Pipeline::train(const Schedule& schedule, const std::vector<MicroBatch>& batches,
                       double loss_weight, std::int64_t prefix) {
  micro_batches_ = schedule.micro_batches;
  COPUS_CHECK(prefix >= 0 && prefix < micro_batches_);
  prefix_ = static_cast<std::int32_t>(prefix);
  passing_.assign(chunks_.size() * static_cast<std::size_t>(micro_batches_), Passing());
  backward_left_.assign(chunks_.size(), micro_batches_);
  losses_.clear();
  const std::vector<Action>& actions = schedule.ranks[static_cast<std::size_t>(mesh_.at.pp)];
  // If an action's message can arrive while the action before it runs, the receive starts before
  // that one; otherwise after it. A receive kernel that waits for a result of this rank's own
  // current action would block host calls that wait for all kernels, as the allocator's do when
  // memory is short.
  const std::vector<bool> early = arrives_early(schedule, static_cast<std::int32_t>(mesh_.at.pp));
  Inbox inbox = expect(actions.front());
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const Action& action = actions[i];
    const bool last = i + 1 == actions.size();
    Inbox next;
    if (!last && early[i + 1]) next = expect(actions[i + 1]);
    open_tap(action);  // also for a backward pass: with recompute it runs the forward pass again
    if (action.kind == ActionKind::kForward) {
      forward(action, batches[static_cast<std::size_t>(action.micro_batch)], inbox);
    } else {
      COPUS_CHECK(action.kind == ActionKind::kBackward);
      backward(action, loss_weight, inbox);
    }
    if (!last && !early[i + 1]) next = expect(actions[i + 1]);
    inbox = std::move(next);
  }
  finish_sends();
  return losses_.empty() ? at::empty({0}, options_.dtype(at::kFloat)) : at::stack(losses_);
}

Tensor Pipeline::evaluate(const std::vector<MicroBatch>& batches, std::int64_t rows) {
  const at::NoGradGuard no_grad;
  std::vector<std::int64_t> activation = activation_;
  activation[0] = rows;
  std::vector<Tensor> losses;
  for (const MicroBatch& batch : batches) {
    const Activity::Scope doing(mesh_.world->activity(), Doing::kEvaluating);
    for (const LocalChunk& local : chunks_) {
      const ChunkSpec& spec = local.model->spec();
      Tensor input = batch.tokens;
      if (!spec.embeds) {
        input = at::empty(activation, options_);
        mesh_.previous_forward->start_receive(input, 0).wait();
      }
      const Tensor output = local.model->forward(input);
      if (spec.heads) {
        losses.push_back(local.model->loss(output, batch.targets));
      } else {
        send(mesh_.next_forward, output, 1);
      }
    }
  }
  finish_sends();
  return losses.empty() ? at::empty({0}, options_.dtype(at::kFloat)) : at::stack(losses);
}

}  // namespace copus
