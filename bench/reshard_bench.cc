// Measures how long a live run pauses to move to another layout on this machine, and compares the
// pause with:
//
// floor    The same ranks send each other as many bytes in the same pattern, all at once, in plain
//          buffers of 8 MiB. This is the time of the process group's link alone, a lower bound for
//          a move by messages. Aim: a pause of at most twice the floor. Ranks of one machine may
//          read each other's memory, which is faster than that link; such a pause can be shorter
//          than the floor.
// memory   The ranks read the same buffers from each other's memory: the floor of a move by memory.
// restart  The state is saved, all ranks end, new ranks start, meet and read the state that they
//          need. The files come from the page cache, and the launcher keeps running, so a restart
//          elsewhere takes longer. Aim: at least 5 pauses.
//
// Ranks are processes with one thread of computation each. Every repetition has two generations of
// processes: one moves, moves back and saves, and one loads. Each element of the state has a number
// that depends only on which element it is. After the move and after the restart, every rank must
// have the state of a run that has always had the new layout; if not, the exit code is 1.
//
//   reshard_bench [new] [memory] [messages] [RANKS ...]
//
// RANKS is 2 or 4; the default is both. By default the memory for a move is reserved beforehand, as
// in a run that adapts; with "new" the move takes it from the system within the pause. With
// "memory" (the default) ranks read each other's memory, as in a run; with "messages" they do not.
// With both words there is a table of each.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "bench/state_file.h"
#include "copus/base/json.h"
#include "copus/base/median.h"
#include "copus/base/remove_tree.h"
#include "copus/base/text.h"
#include "copus/train/device/host_memory.h"
#include "copus/train/launch/environment.h"
#include "copus/train/launch/supervisor.h"
#include "copus/train/move/move.h"

namespace copus {
namespace {

constexpr int kRepeats = 3;
constexpr std::chrono::seconds kOperationLimit{60};
constexpr unsigned kGenerationLimitS = 180;

// Returns the seconds of a clock that all processes share.
double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <typename T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(result).value();
}

ModelSpec bench_model() {
  ModelSpec m;
  m.name = "llama-100m";
  m.layers = 12;
  m.hidden = 768;
  m.ffn = 2048;
  m.heads = m.kv_heads = 12;
  m.head_dim = 64;
  m.vocab = 8192;
  m.max_positions = 64;
  return m;
}

TrainerOptions options_at(const std::string& layout) {
  TrainerOptions options;
  options.model = bench_model();
  options.plan = must(parse_plan_text(layout, "plan")).plan;
  options.seq_len = 32;
  options.global_batch = 8;
  return options;
}

// --- A rank ---

// Writes the numbers of `count` elements of one array of a tensor, from the element `first` on.
void fill_run(std::uint32_t array, std::int64_t first, std::int64_t count, float* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t hash = (static_cast<std::uint32_t>(first + i) + array) * 2654435761U;
    out[i] = static_cast<float>(hash >> 8U);
  }
}

void fill_state(const ModelSpec& model, const StateParameters& parameters) {
  std::map<std::string, std::uint32_t> index;
  for (const TensorSpec& tensor : model_tensors(model)) {
    index.emplace(tensor.name, static_cast<std::uint32_t>(index.size()));
  }
  for (const auto& own : parameters) {
    for (const Bucket& bucket : own->buckets()) {
      for (const PlacedTensor& tensor : bucket.tensors) {
        const std::int64_t width = tensor.spec.shape.size() > 1 ? tensor.spec.shape[1] : 1;
        const auto fill = [&](std::uint32_t kind, const Tensor& flat, const Range& held) {
          const Range local{std::max(held.begin, tensor.offset) - tensor.offset,
                            std::min(held.end, tensor.offset + tensor.size) - tensor.offset};
          if (local.begin >= local.end) return;
          const Stripe stripe = stripe_of(tensor.spec, tensor.shard, local);
          const std::uint32_t array = (3 * index.at(tensor.spec.name) + kind) * 40503U;
          std::int64_t k = stripe.begin;
          for (const Block& block : blocks_of(tensor, stripe)) {
            for (std::int64_t row = 0; row < block.rows; ++row) {
              float* out = flat.data_ptr<float>() + block.offset + row * block.stride - held.begin;
              for (std::int64_t left = block.columns; left > 0;) {
                const std::int64_t column = k % stripe.columns;
                const std::int64_t count = std::min(left, stripe.columns - column);
                fill_run(array, k / stripe.columns * width + stripe.first_column + column, count,
                         out);
                out += count;
                k += count;
                left -= count;
              }
            }
          }
        };
        const Range owned{bucket.owned_begin, bucket.owned_begin + bucket.owned_length};
        fill(0, bucket.values, {0, bucket.padded});
        fill(1, bucket.moment1, owned);
        fill(2, bucket.moment2, owned);
      }
    }
  }
}

// FNV-1a, four bytes at a time.
std::uint64_t hash_state(const StateParameters& parameters) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const auto& own : parameters) {
    for (const Bucket& bucket : own->buckets()) {
      for (const Tensor& array : {bucket.values, bucket.moment1, bucket.moment2}) {
        const auto* word = reinterpret_cast<const std::uint32_t*>(array.data_ptr<float>());
        for (std::int64_t i = 0; i < array.numel(); ++i) hash = (hash ^ word[i]) * 0x100000001b3ULL;
      }
    }
  }
  return hash;
}

// Returns the hashes of all ranks as one text, on every rank.
std::string gather_hashes(const Comm& world, std::uint64_t mine) {
  const Tensor all = at::zeros({world.size()}, at::kLong);
  world.all_gather(all, at::full({1}, static_cast<std::int64_t>(mine), at::kLong));
  std::string text;
  for (int rank = 0; rank < world.size(); ++rank) {
    text += fmt::format("{:016x} ", static_cast<std::uint64_t>(all[rank].item<std::int64_t>()));
  }
  return text;
}

double longest(const Comm& world, double seconds) {
  const Tensor x = at::full({1}, seconds, at::kDouble);
  world.all_reduce_max(x);
  return x.item<double>();
}

double mean(const Comm& world, double seconds) {
  const Tensor x = at::full({1}, seconds, at::kDouble);
  world.all_reduce(x);
  return x.item<double>() / world.size();
}

struct Floors {
  double link_s = 0, memory_s = 0;  // memory_s: 0 if some rank cannot read another's memory
};

// Measures how long the messages of a transfer plan take as plain buffers: sent as messages, and
// read from the peer's memory. Each buffer has its own memory, which has been touched before.
Floors floors(const Comm& world, const TransferPlan& plan) {
  struct Plain {
    int peer;
    Tensor bytes;
  };
  const auto buffers = [](const std::vector<Transfer>& transfers) {
    constexpr std::int64_t kMessage = 8 << 20;
    std::vector<Plain> all;
    for (const Transfer& transfer : transfers) {
      for (std::int64_t left = transfer.bytes; left > 0; left -= kMessage) {
        all.push_back({transfer.peer, at::ones({std::min(left, kMessage)}, at::kByte)});
      }
    }
    return all;
  };
  const std::vector<Plain> sends = buffers(plan.sends), receives = buffers(plan.receives);
  const auto send = [&] {
    std::vector<Pending> pending;
    for (const Plain& each : receives) {
      pending.push_back(world.start_receive(each.bytes, each.peer));
    }
    for (const Plain& each : sends) pending.push_back(world.start_send(each.bytes, each.peer));
    for (Pending& each : pending) each.wait();
  };
  // Each rank publishes its buffers' receivers and addresses.
  std::vector<std::int64_t> places;
  for (const Plain& each : sends) {
    places.push_back(each.peer);
    places.push_back(reinterpret_cast<std::intptr_t>(each.bytes.data_ptr()));
  }
  const PeerMemory peers(world, at::kCPU, places, nullptr);
  const auto read = [&] {
    std::map<int, std::size_t> next;  // by peer: index of the first place that is not read yet
    for (const Plain& each : receives) {
      const auto published = peers.published(each.peer);
      std::size_t& i = next[each.peer];
      while (published[i] != world.rank()) i += 2;
      const auto bytes = static_cast<std::size_t>(each.bytes.numel());
      const iovec from{reinterpret_cast<void*>(published[i + 1]), bytes};
      const iovec to{each.bytes.data_ptr(), bytes};
      peers.read(each.peer, {&from, 1}, {&to, 1});
      i += 2;
    }
  };
  const auto time = [&](const auto& exchange) {
    std::vector<double> times;
    for (int i = 0; i <= kRepeats; ++i) {
      world.barrier();
      const double begin = now_s();
      exchange();
      times.push_back(longest(world, now_s() - begin));
    }
    times.erase(times.begin());  // the first use of the connections
    return median(times);
  };
  Floors floors{.link_s = time(send)};
  bool readable = true;
  for (int i = 0; i < world.size() * world.size(); ++i) {
    const int reader = i / world.size(), rank = i % world.size();
    readable &= reader == rank || peers.reads(reader, rank);
  }
  if (readable) floors.memory_s = time(read);
  return floors;
}

Rendezvous meet(const RankEnvironment& who) {
  Rendezvous rendezvous;
  rendezvous.timeout = kOperationLimit;
  rendezvous.rank = who.rank;
  rendezvous.world_size = who.world_size;
  rendezvous.store =
      must(join_store(who.master_address, who.master_port, who.world_size, rendezvous.timeout));
  return rendezvous;
}

struct RankTask {
  std::string generation;  // "move" or "load"
  std::string memory;      // "reserved" or "new"
  std::string way;         // "memory" or "messages"
  std::string folder, from, to;
};

LayoutChange change_of(const RankTask& task) {
  const TrainerOptions from = options_at(task.from);
  return {.model = from.model,
          .from = from.plan,
          .to = options_at(task.to).plan,
          .bucket_elements = from.bucket_elements};
}

Json move_and_save(GroupCache& groups, const RankTask& task) {
  const TrainerOptions from = options_at(task.from), to = options_at(task.to);
  const auto reserve = [&](const TrainerOptions& options) {
    if (task.memory != "reserved") return;
    reserve_memory(static_cast<std::int64_t>(largest_host_memory(options).v),
                   static_cast<int>(to.plan.gpus()));
  };
  if (task.memory == "reserved") keep_freed_memory();
  reserve(from);
  Trainer& trainer = *must(Trainer::create(groups, from)).release();  // ends with the process
  reserve(to);
  fill_state(from.model, trainer.parameters());
  const Comm& world = *trainer.mesh().world;
  const TransferPlan plan = plan_transfer(change_of(task), world.rank());
  Json report;

  MoveOptions how;
  if (task.way == "messages") how.reshard.may_read = [](int) { return false; };
  const auto move = [&](const TrainerOptions& next) {
    world.barrier();
    const MoveResult moved = move_run(trainer, groups, {next.plan, next.global_batch}, how);
    if (!moved.done) throw std::runtime_error("the move failed: " + moved.error);
    return moved;
  };
  const MoveResult moved = move(to);
  report["pause"] = longest(world, moved.pause.v);
  report["groups"] = mean(world, moved.groups.v);
  report["allocate"] = mean(world, moved.allocate.v);
  report["transfer"] = mean(world, moved.transfer.v);
  report["commit"] = mean(world, moved.commit.v);
  report["moved"] = static_cast<double>(moved.bytes_moved);
  report["busiest"] =
      static_cast<double>(std::max(*std::max_element(plan.sent.begin(), plan.sent.end()),
                                   *std::max_element(plan.received.begin(), plan.received.end())));
  report["moved_hash"] = gather_hashes(world, hash_state(trainer.parameters()));
  fill_state(from.model, trainer.parameters());
  report["right_hash"] = gather_hashes(world, hash_state(trainer.parameters()));

  move(from);
  const Floors floor = plan.moved > 0 ? floors(world, plan) : Floors();
  report["floor"] = floor.link_s;
  report["memory_floor"] = floor.memory_s;
  world.barrier();
  report["save_begin"] = now_s();
  save_state(task.folder, trainer.mesh(), trainer.parameters());
  world.barrier();
  report["save_end"] = now_s();
  return report;
}

Json load(GroupCache& groups, const RankTask& task) {
  const double met = now_s();
  const TrainerOptions to = options_at(task.to);
  Layout& layout = *must(Layout::create(groups, to, ParameterStart::kUnset)).release();
  load_state(task.folder, change_of(task), layout.mesh.rank, layout.parameters);
  layout.settle(to);
  layout.mesh.world->barrier();
  Json report;
  report["met"] = met;
  report["ready"] = now_s();
  report["loaded_hash"] = gather_hashes(*layout.mesh.world, hash_state(layout.parameters));
  return report;
}

std::string report_path(const RankTask& task) {
  return fmt::format("{}/{}.json", task.folder, task.generation);
}

int run_rank(const RankTask& task) {
  ::alarm(kGenerationLimitS);
  try {
    const RankEnvironment who = must(rank_environment(environment_variable)).value();
    at::set_num_threads(1);
    GroupCache groups(meet(who));
    const Json report =
        task.generation == "move" ? move_and_save(groups, task) : load(groups, task);
    if (who.rank == 0) std::ofstream(report_path(task)) << report << std::flush;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", first_line(error));
    ::_exit(1);
  }
  ::_exit(0);  // like a run that is killed, without cleaning up
}

// --- The process that starts the ranks ---

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = std::filesystem::temp_directory_path() / "copus_reshard_XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr)
      throw std::runtime_error("cannot make a temporary folder");
    path_ = pattern;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    remove_tree(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Json run_generation(int ranks, const RankTask& task) {
  const ServedStore served = must(serve_store(0, ranks, kOperationLimit));
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  SupervisorOptions options;
  options.ranks = ranks;
  options.command = {self,     "rank",      task.generation, task.memory,
                     task.way, task.folder, task.from,       task.to};
  options.master_port = served.port;
  const SupervisorOutcome outcome = must(supervise(options));
  if (!outcome.message.empty()) throw std::runtime_error(outcome.message);
  return must(read_json_file(report_path(task)));
}

struct Figures {
  std::map<std::string, std::vector<double>> all;
  bool right = true;

  double operator[](const std::string& name) const { return median(all.at(name)); }
};

Figures measure(int ranks, const std::string& memory, const std::string& way,
                const std::string& from, const std::string& to) {
  Figures figures;
  for (int i = 0; i < kRepeats; ++i) {
    const TemporaryFolder folder;
    const Json moved = run_generation(ranks, {"move", memory, way, folder.path(), from, to});
    const Json loaded = run_generation(ranks, {"load", memory, way, folder.path(), from, to});
    for (const auto& [name, value] : moved.items()) {
      if (value.is_number()) figures.all[name].push_back(value.get<double>());
    }
    const auto time = [](const Json& report, const char* name) {
      return report.at(name).get<double>();
    };
    const double save_begin = time(moved, "save_begin"), ready = time(loaded, "ready");
    figures.all["save"].push_back(time(moved, "save_end") - save_begin);
    figures.all["load"].push_back(ready - time(loaded, "met"));
    figures.all["restart"].push_back(ready - save_begin);
    figures.right &= moved.at("moved_hash") == moved.at("right_hash") &&
                     loaded.at("loaded_hash") == moved.at("right_hash");
  }
  return figures;
}

// Measures all pairs and prints the table. Returns whether all states were right.
bool print_table(int ranks, const std::string& memory, const std::string& way,
                 const std::vector<std::pair<std::string, std::string>>& pairs) {
  std::vector<std::vector<std::string>> rows;
  bool right = true;
  for (const auto& [from, to] : pairs) {
    const Figures f = measure(ranks, memory, way, from, to);
    right &= f.right;
    const bool moves = f["moved"] > 0;
    const auto seconds = [&](const char* name) { return human_seconds(f[name]); };
    const auto if_moves = [&](const std::string& text) { return moves ? text : "-"; };
    rows.push_back({fmt::format("{} -> {}", from, to), seconds("pause"), seconds("groups"),
                    seconds("allocate"), seconds("transfer"), seconds("commit"),
                    human_bytes(f["moved"]), if_moves(human_bytes(f["busiest"])),
                    if_moves(seconds("floor")),
                    moves ? fmt::format("{:.2f}", f["busiest"] / f["floor"] / 1e9) : "-",
                    moves ? fmt::format("{:.2f}", f["pause"] / f["floor"]) : "-",
                    f["memory_floor"] > 0 ? seconds("memory_floor") : "-", seconds("save"),
                    seconds("load"), seconds("restart"),
                    fmt::format("{:.1f}", f["restart"] / f["pause"]), f.right ? "same" : "WRONG"});
  }
  fmt::print("{} ranks, by {}, {} memory\n{}\n", ranks, way, memory,
             format_table({"move", "pause", "groups", "allocate", "transfer", "commit", "moved",
                           "busiest rank", "floor", "GB/s", "pause/floor", "memory", "save", "load",
                           "restart", "restart/pause", "state"},
                          rows));
  std::fflush(stdout);
  return right;
}

int run(std::vector<std::string> arguments) {
  if (arguments.size() == 7 && arguments[0] == "rank") {
    return run_rank(
        {arguments[1], arguments[2], arguments[3], arguments[4], arguments[5], arguments[6]});
  }
  const std::map<std::string, std::vector<std::pair<std::string, std::string>>> pairs = {
      {"2", {{"pp=2", "dp=2"}, {"dp=2", "pp=2"}, {"tp=2", "dp=2,zero=1"}, {"pp=2", "tp=2"}}},
      {"4", {{"pp=4", "dp=4"}, {"dp=4", "dp=2,pp=2"}, {"tp=2,pp=2", "dp=4,zero=1"}}}};
  try {
    fmt::print("{} ({} parameters), FP32; medians of {}\n\n", bench_model().name,
               human_count(static_cast<double>(bench_model().total_params())), kRepeats);
    bool right = true;
    const std::string memory = std::erase(arguments, "new") > 0 ? "new" : "reserved";
    std::vector<std::string> ways;
    for (const char* way : {"memory", "messages"}) {
      if (std::erase(arguments, way) > 0) ways.emplace_back(way);
    }
    if (ways.empty()) ways = {"memory"};
    if (arguments.empty()) arguments = {"2", "4"};
    for (const std::string& ranks : arguments) {
      if (!pairs.contains(ranks)) throw std::runtime_error("ranks: got " + ranks + "; want 2 or 4");
      for (const std::string& way : ways) {
        right &= print_table(std::stoi(ranks), memory, way, pairs.at(ranks));
      }
    }
    return right ? 0 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "reshard_bench: {}\n", first_line(error));
    return 1;
  }
}

}  // namespace
}  // namespace copus

int main(int argc, char** argv) {
  return copus::run(std::vector<std::string>(argv + 1, argv + argc));
}
