// Schedule: the order of work on each pipeline rank, as data. The cost model times it, the trainer
// runs it, and the trace draws it.
//
// Model chunks are numbered in model order, 0 .. pp*vp-1. Chunk c is on pipeline rank c % pp. A
// forward of chunk c needs the forward of chunk c-1 (same micro-batch). A backward of chunk c needs
// the backward of chunk c+1 and its own forward. Each such dependency between two ranks is one
// message, sent right after the action that produces it. Messages on one channel (source rank,
// destination rank, forward or backward) arrive in order, so that engines without message tags can
// run the schedule.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "copus/base/result.h"
#include "copus/spec/parallel_plan.h"

namespace copus {

enum class ActionKind : std::uint8_t {
  kForward,
  kBackward,        // gradients of input and weights together
  kBackwardInput,   // gradient of the input only (zero-bubble schedules)
  kBackwardWeight,  // gradient of the weights, any time after kBackwardInput
};

struct Action {
  ActionKind kind = ActionKind::kForward;
  std::int32_t chunk = 0;        // in model order
  std::int32_t micro_batch = 0;  // 0-based
  friend bool operator==(const Action&, const Action&) = default;
};

struct Schedule {
  ScheduleKind kind = ScheduleKind::k1F1B;
  std::int32_t pp = 1;
  std::int32_t vp = 1;
  std::int32_t micro_batches = 1;
  std::vector<std::vector<Action>> ranks;  // actions of each pipeline rank, in order

  std::int32_t chunks() const { return pp * vp; }
  std::int32_t rank_of_chunk(std::int32_t chunk) const { return chunk % pp; }
};

// Builds the schedule. Interleaved needs micro_batches to be a multiple of pp and vp > 1; the
// others need vp == 1.
Result<Schedule> make_schedule(ScheduleKind kind, std::int64_t pp, std::int64_t vp,
                               std::int64_t micro_batches);

// Checks that the schedule is complete (every chunk and micro-batch once, each in the right place),
// matched (messages on each channel are received in the order in which they are sent) and free of
// deadlock. The error names the first wrong action.
Result<void> check_schedule(const Schedule& schedule);

// Returns the largest number of chunk activations that each pipeline rank holds at once. A rank
// holds an activation from a forward to the end of its backward.
std::vector<std::int64_t> peak_activations(const Schedule& schedule);

// Returns for each action of one pipeline rank whether its message can arrive while the previous
// action of the rank still runs. False if the sender needs the result of that previous action,
// directly or through other ranks. False also if the action takes no message.
std::vector<bool> arrives_early(const Schedule& schedule, std::int32_t rank);

// Returns "F0 F1 F2 B0 …" for each rank, for people to read.
std::string to_text(const Schedule& schedule);

}  // namespace copus
