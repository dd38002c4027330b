#include "copus/cost/work_cut.h"

#include <algorithm>

namespace copus {
namespace {

Seconds total(const ModelWork& work) noexcept {
  return work.embedding + work.dense_layers * work.dense_layer + work.moe_layers * work.moe_layer +
         work.head;
}

// Returns the layers within the first `done` of the work, which begins with the embedding.
LayerShare layers_after(const ModelWork& work, Seconds done) noexcept {
  done -= work.embedding;
  LayerShare layers;
  if (work.dense_layers > 0) {
    layers.dense_layers = std::clamp(done / work.dense_layer, 0.0, work.dense_layers);
    done -= work.dense_layers * work.dense_layer;
  }
  if (work.moe_layers > 0)
    layers.moe_layers = std::clamp(done / work.moe_layer, 0.0, work.moe_layers);
  return layers;
}

}  // namespace

LayerShare cut_by_work(const ModelWork& work, std::int64_t chunks, std::int64_t index) noexcept {
  const Seconds share = total(work) / real(chunks);
  ModelWork rest = work;
  if (chunks > 1 && work.head > share) {
    rest.head = Seconds(0);
    return index == chunks - 1 ? LayerShare{} : cut_by_work(rest, chunks - 1, index);
  }
  if (chunks > 1 && work.embedding > share) {
    rest.embedding = Seconds(0);
    return index == 0 ? LayerShare{} : cut_by_work(rest, chunks - 1, index - 1);
  }
  const LayerShare before = index == 0 ? LayerShare{} : layers_after(work, share * real(index));
  const LayerShare after = index == chunks - 1 ? LayerShare{work.dense_layers, work.moe_layers}
                                               : layers_after(work, share * real(index + 1));
  return {after.dense_layers - before.dense_layers, after.moe_layers - before.moe_layers};
}

}  // namespace copus
