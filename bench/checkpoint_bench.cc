// Measures what a checkpoint costs a run with 100M parameters, on two ranks of this machine:
//
// held up  how long the run waits, divided by the time of the write in the background. The run
//          waits for the part of the copy that is not done when the next step's update comes.
//          Aim: below 0.1. The first save also takes its memory from the system, so the table
//          shows it in a column of its own.
// reload   the time to load at another layout, divided by the time to load at the layout that wrote
//          the checkpoint. Both loads verify every checksum and read from the page cache.
//          Aim: at most 1.5.
//
//   checkpoint_bench [FOLDER]
//
// FOLDER is on the disk to measure; checkpoints are written into it (default: the current folder).
// Ranks are threads. Figures are medians of three. The exit code is 1 if an aim is missed.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <mutex>

#include "copus/base/median.h"
#include "copus/base/remove_tree.h"
#include "copus/base/seconds_since.h"
#include "copus/base/text.h"
#include "copus/train/checkpoint/reader.h"
#include "copus/train/comm/rank_threads.h"
#include "copus/train/move/trainer_saver.h"
#include "copus/train/run/start.h"

namespace copus {
namespace {

constexpr int kRanks = 2, kRepeats = 3;

template <typename T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(result).value();
}

TrainerOptions options_at(const char* layout) {
  TrainerOptions options;
  ModelSpec& m = options.model;
  m.name = "llama-100m";
  m.layers = 12;
  m.hidden = 768;
  m.ffn = 2048;
  m.heads = m.kv_heads = 12;
  m.head_dim = 64;
  m.vocab = 16384;
  m.max_positions = 64;
  options.plan = must(parse_plan_text(layout, "plan")).plan;
  options.seq_len = 32;
  options.global_batch = 8;
  return options;
}

// The largest time of all ranks, because the run waits for the slowest one.
struct Slowest {
  std::mutex mutex;
  double s = 0;
  void add(double seconds) {
    const std::lock_guard<std::mutex> lock(mutex);
    s = std::max(s, seconds);
  }
};

struct Saved {
  double first_held_up_s = 0, held_up_s = 0, write_s = 0;
  std::int64_t bytes = 0;
};

Saved save_at(const char* layout, const std::string& run_dir) {
  std::vector<Slowest> held_up(kRepeats + 1), write(kRepeats + 1);
  Saved saved;
  run_ranks(kRanks, [&](int rank, GroupCache& groups) {
    const auto trainer = must(Trainer::create(groups, options_at(layout)));
    const Dataset data = must(Dataset::open(
        {"builtin"}, {.seq_len = options_at(layout).seq_len, .seed = 1, .vocab = 256}));
    SaverOptions options;
    options.run_dir = run_dir;
    options.rank = rank;
    options.ranks = kRanks;
    options.retention.keep = 1;
    TrainerSaver saver(options);
    saver.prepare(*trainer);
    for (std::size_t i = 0; i <= kRepeats; ++i) {
      trainer->mesh().world->barrier();
      saver.save(*trainer, manifest_of(*trainer, static_cast<std::int64_t>(i), 0, Json::object()));
      must(trainer->step(data, 0));
      held_up[i].add(saver.held_up().v);
      const SaveOutcome outcome = *saver.wait();
      if (!outcome.error.empty()) throw std::runtime_error(outcome.error);
      write[i].add(outcome.write.v);
      if (rank == 0) saved.bytes = outcome.bytes;
    }
  });
  std::vector<double> held, written;
  for (std::size_t i = 1; i <= kRepeats; ++i) {
    held.push_back(held_up[i].s);
    written.push_back(write[i].s);
  }
  saved.first_held_up_s = held_up[0].s;
  saved.held_up_s = median(held);
  saved.write_s = median(written);
  return saved;
}

double load_at(const char* layout, const std::string& folder) {
  std::vector<double> seconds;
  for (int i = 0; i < kRepeats; ++i) {
    Slowest load;
    run_ranks(kRanks, [&](int, GroupCache& groups) {
      // The groups are made before the clock starts: they take equally long at every layout.
      must(Mesh::create(groups, options_at(layout).plan, options_at(layout).model))
          .world->barrier();
      const auto begin = std::chrono::steady_clock::now();
      const CheckpointReader reader = must(CheckpointReader::open(folder));
      const auto trainer = must(restore_verified(groups, options_at(layout), reader));
      load.add(seconds_since(begin).v);
    });
    seconds.push_back(load.s);
  }
  return median(seconds);
}

int run(const std::string& where) {
  const std::string run_dir =
      (std::filesystem::path(where) / fmt::format("checkpoint_bench.{}", ::getpid())).string();
  const std::vector<const char*> layouts = {"dp=2,zero=1", "tp=2", "pp=2"};
  const double parameters = static_cast<double>(options_at("dp=2").model.total_params());
  bool good = true;
  std::vector<std::vector<std::string>> saves, loads;
  for (const char* from : {layouts[0], layouts[1]}) {
    const Saved saved = save_at(from, run_dir);
    const double held_up = saved.held_up_s / saved.write_s;
    good &= held_up < 0.1;
    saves.push_back({from, human_bytes(static_cast<double>(saved.bytes)),
                     human_seconds(saved.write_s), human_seconds(saved.held_up_s),
                     fmt::format("{:.3f}", held_up), human_seconds(saved.first_held_up_s)});
    const std::string folder = checkpoint_folder(run_dir, kRepeats);
    const double same = load_at(from, folder);
    for (const char* to : layouts) {
      const bool is_same = to == from;
      const double seconds = is_same ? same : load_at(to, folder);
      good &= seconds / same <= 1.5;
      loads.push_back({from, to, human_seconds(seconds), fmt::format("{:.2f}", seconds / same)});
    }
  }
  std::error_code ignored;
  remove_tree(run_dir, ignored);
  fmt::print("{} parameters, FP32, {} ranks; medians of {}\n\n{}\n{}", human_count(parameters),
             kRanks, kRepeats,
             format_table({"save at", "bytes", "write", "held up", "/ write", "first time"}, saves),
             format_table({"saved at", "<loaded at", "load", "/ same"}, loads));
  return good ? 0 : 1;
}

}  // namespace
}  // namespace copus

int main(int argc, char** argv) {
  try {
    return copus::run(argc > 1 ? argv[1] : ".");
  } catch (const std::exception& error) {
    fmt::print(stderr, "checkpoint_bench: {}\n", copus::first_line(error));
    return 1;
  }
}
