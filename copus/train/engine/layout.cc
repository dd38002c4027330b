#include "copus/train/engine/layout.h"

#include <algorithm>

#include "copus/train/device/device.h"
#include "copus/train/model/tensor_parallel.h"
#include "copus/train/state/transfer.h"

namespace copus {

Bytes largest_host_memory(const LayoutOptions& options) {
  const ParallelPlan& plan = options.plan;
  const bool bf16 = options.compute == Compute::kBf16;
  const std::int64_t gradient_bytes = options.device.is_cpu() ? sizeof(float) : 0;
  std::int64_t largest = 0;
  for (std::int64_t stage = 0; stage < plan.pp; ++stage) {
    std::int64_t bytes = 0;
    for (std::int64_t i = 0; i < plan.vp; ++i) {
      for (const BucketPlacement& bucket :
           place_chunk(options.model, chunk_spec(options.model, plan, stage + i * plan.pp), plan,
                       {.pp = stage}, options.bucket_elements)) {
        bytes += bucket.padded * (bytes_per_element(StateKind::kValues, bf16) + gradient_bytes) +
                 bucket.owned_length * bytes_per_element(StateKind::kOptimizer, bf16);
      }
    }
    largest = std::max(largest, bytes);
  }
  return Bytes(real(largest));
}

Result<std::unique_ptr<Layout>> Layout::create(GroupCache& groups, const LayoutOptions& options,
                                               ParameterStart start) {
  const ParallelPlan& plan = options.plan;
  std::unique_ptr<Layout> layout(new Layout);
  COPUS_TRY(layout->schedule, make_schedule(plan.schedule, plan.pp, plan.vp,
                                            plan.micro_batches(options.global_batch)));
  COPUS_TRY(layout->mesh, Mesh::create(groups, plan, options.model));
  const BucketOptions bucket_options{.dtype = compute_dtype(options),
                                     .device = torch_device(options.device),
                                     .bucket_elements = options.bucket_elements,
                                     .seed = options.seed,
                                     .start = start};
  for (std::int64_t i = 0; i < plan.vp; ++i) {
    layout->parameters.push_back(std::make_unique<ChunkParameters>(
        options.model, chunk_spec(options.model, plan, layout->mesh.at.pp + i * plan.pp),
        layout->mesh, bucket_options));
  }
  if (start == ParameterStart::kInitial) layout->build_chunks(options);
  return layout;
}

void Layout::settle(const LayoutOptions& options) {
  for (auto& own : parameters) own->settle(torch_device(options.device));
  build_chunks(options);
}

Result<void> Layout::reshape(const LayoutOptions& options) {
  const ParallelPlan& plan = options.plan;
  COPUS_TRY(schedule, make_schedule(plan.schedule, plan.pp, plan.vp,
                                    plan.micro_batches(options.global_batch)));
  mesh.plan = plan;
  pipeline.reset();
  chunks_.clear();
  build_chunks(options);
  return {};
}

void Layout::build_chunks(const LayoutOptions& options) {
  const ParallelPlan& plan = options.plan;
  if (plan.tp > 1) {
    partition_ = std::make_unique<TensorParallel>(*mesh.tp, options.model.vocab, plan.sp);
  } else {
    partition_ = std::make_unique<Partition>();
  }
  std::vector<LocalChunk> local;
  for (std::int64_t i = 0; i < plan.vp; ++i) {
    ChunkParameters& own = *parameters[static_cast<std::size_t>(i)];
    chunks_.push_back(std::make_unique<ModelChunk>(
        options.model, chunk_spec(options.model, plan, mesh.at.pp + i * plan.pp), own.values(),
        *partition_, plan.recompute, options.seq_len));
    chunks_.back()->set_tap(&tap);
    local.push_back({chunks_.back().get(), &own});
  }
  pipeline = std::make_unique<Pipeline>(
      mesh, std::move(local),
      std::vector<std::int64_t>{plan.micro_batch, partition_->positions(options.seq_len).second,
                                options.model.hidden},
      at::TensorOptions().dtype(compute_dtype(options)).device(torch_device(options.device)));
  pipeline->set_tap(&tap);
  if (options.device.is_cuda() && plan.pp > 1) pipeline->load_kernels(options.seq_len);
}

}  // namespace copus
