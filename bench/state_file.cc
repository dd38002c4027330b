#include "bench/state_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <unordered_map>

namespace copus {
namespace {

constexpr std::int64_t kFloat = sizeof(float);

class File {
 public:
  File(const std::string& path, int flags) : path_(path), fd_(::open(path.c_str(), flags, 0600)) {
    if (fd_ < 0) fail();
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { ::close(fd_); }

  void write(const Tensor& array) {
    const auto* data = reinterpret_cast<const char*>(array.data_ptr<float>());
    for (std::int64_t left = array.numel() * kFloat; left > 0;) {
      const ssize_t n = ::write(fd_, data, static_cast<std::size_t>(left));
      if (n <= 0) fail();
      data += n;
      left -= n;
    }
  }
  void sync() {
    if (::fsync(fd_) != 0) fail();
  }
  void read(float* out, std::int64_t elements, std::int64_t first_element) {
    auto* data = reinterpret_cast<char*>(out);
    std::int64_t at = first_element * kFloat;
    for (std::int64_t left = elements * kFloat; left > 0;) {
      const ssize_t n = ::pread(fd_, data, static_cast<std::size_t>(left), at);
      if (n <= 0) fail();
      data += n;
      at += n;
      left -= n;
    }
  }

 private:
  [[noreturn]] void fail() const {
    throw std::runtime_error(fmt::format("{}: {}", path_, std::strerror(errno)));
  }
  std::string path_;
  int fd_;
};

std::string file_name(const std::string& folder, StateKind kind, int rank) {
  return fmt::format("{}/{}.{}", folder, kind == StateKind::kValues ? "values" : "optimizer", rank);
}

// Returns the rank whose file has the state that `rank` holds.
int writer(const ParallelPlan& plan, StateKind kind, int rank) {
  const RankGrid grid(plan);
  Coordinates at = grid.coordinates_of(rank);
  if (kind == StateKind::kValues || plan.zero == 0) at.dp = 0;
  return static_cast<int>(grid.rank_of(at));
}

// The place of a tensor's part in a rank's arrays of one kind. `arrays` has, for each array, the
// position of the bucket's element 0, counted in elements from the beginning of the file.
struct FilePlace {
  PlacedTensor tensor;
  std::vector<std::int64_t> arrays;
};

// Returns the places of all tensors in a rank's file of one kind, by name.
std::unordered_map<std::string, FilePlace> places_in_file(const LayoutChange& change,
                                                          StateKind kind, int rank) {
  const ParallelPlan& plan = change.from;
  const Coordinates at = RankGrid(plan).coordinates_of(rank);
  std::unordered_map<std::string, FilePlace> places;
  std::int64_t end = 0;
  for (std::int64_t i = 0; i < plan.vp; ++i) {
    const ChunkSpec chunk = chunk_spec(change.model, plan, at.pp + i * plan.pp);
    for (const BucketPlacement& bucket :
         place_chunk(change.model, chunk, plan, at, change.bucket_elements)) {
      std::vector<std::int64_t> arrays;
      if (kind == StateKind::kValues) {
        arrays = {end};
        end += bucket.padded;
      } else {
        arrays = {end - bucket.owned_begin, end + bucket.owned_length - bucket.owned_begin};
        end += 2 * bucket.owned_length;
      }
      for (const PlacedTensor& tensor : bucket.tensors) places[tensor.spec.name] = {tensor, arrays};
    }
  }
  return places;
}

struct Run {
  std::int64_t first = 0;
  std::int64_t length = 0;
};

std::vector<Run> runs_of(const PlacedTensor& tensor, const Stripe& stripe) {
  std::vector<Run> runs;
  for (const Block& block : blocks_of(tensor, stripe)) {
    for (std::int64_t row = 0; row < block.rows; ++row) {
      runs.push_back({block.offset + row * block.stride, block.columns});
    }
  }
  return runs;
}

class Loader {
 public:
  Loader(std::string folder, const LayoutChange& change, const StateParameters& parameters)
      : folder_(std::move(folder)), change_(change), tensors_(model_tensors(change.model)) {
    for (const auto& own : parameters) {
      for (const Bucket& bucket : own->buckets()) {
        for (const PlacedTensor& tensor : bucket.tensors) {
          memory_[tensor.spec.name] = {&bucket, &tensor};
        }
      }
    }
  }

  void load(const std::vector<StatePart>& parts, int holder) {
    for (const StatePart& part : parts) {
      const Source& source = source_of(part.kind, writer(change_.from, part.kind, holder));
      const std::string& name = tensors_[part.tensor].name;
      const FilePlace& there = source.places.at(name);
      const auto [bucket, here] = memory_.at(name);
      const std::vector<Run> from = runs_of(there.tensor, part.stripe);
      const std::vector<Run> to = runs_of(*here, part.stripe);
      if (part.kind == StateKind::kValues) {
        read(*source.file, there.arrays[0], from, bucket->values.data_ptr<float>(), to);
      } else {
        float* moment1 = bucket->moment1.data_ptr<float>() - bucket->owned_begin;
        float* moment2 = bucket->moment2.data_ptr<float>() - bucket->owned_begin;
        read(*source.file, there.arrays[0], from, moment1, to);
        read(*source.file, there.arrays[1], from, moment2, to);
      }
    }
  }

 private:
  struct Source {
    std::unique_ptr<File> file;
    std::unordered_map<std::string, FilePlace> places;
  };
  const Source& source_of(StateKind kind, int rank) {
    Source& source = sources_[{kind, rank}];
    if (!source.file) {
      source.file = std::make_unique<File>(file_name(folder_, kind, rank), O_RDONLY | O_CLOEXEC);
      source.places = places_in_file(change_, kind, rank);
    }
    return source;
  }

  // `from` and `to` list the same elements in the same order, cut into different runs.
  static void read(File& file, std::int64_t file_base, const std::vector<Run>& from, float* memory,
                   const std::vector<Run>& to) {
    std::size_t i = 0, j = 0;
    std::int64_t done_from = 0, done_to = 0;
    while (i < from.size() && j < to.size()) {
      const std::int64_t length = std::min(from[i].length - done_from, to[j].length - done_to);
      file.read(memory + to[j].first + done_to, length, file_base + from[i].first + done_from);
      done_from += length;
      done_to += length;
      if (done_from == from[i].length) ++i, done_from = 0;
      if (done_to == to[j].length) ++j, done_to = 0;
    }
  }

  std::string folder_;
  const LayoutChange& change_;
  std::vector<TensorSpec> tensors_;
  std::unordered_map<std::string, std::pair<const Bucket*, const PlacedTensor*>> memory_;
  std::map<std::pair<StateKind, int>, Source> sources_;
};

}  // namespace

void save_state(const std::string& folder, const Mesh& mesh, const StateParameters& parameters) {
  for (const StateKind kind : {StateKind::kValues, StateKind::kOptimizer}) {
    if (writer(mesh.plan, kind, mesh.rank) != mesh.rank) continue;
    File file(file_name(folder, kind, mesh.rank), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC);
    for (const auto& own : parameters) {
      for (const Bucket& bucket : own->buckets()) {
        if (kind == StateKind::kValues) {
          file.write(bucket.values);
        } else {
          file.write(bucket.moment1);
          file.write(bucket.moment2);
        }
      }
    }
    file.sync();
  }
}

void load_state(const std::string& folder, const LayoutChange& change, int rank,
                const StateParameters& parameters) {
  const TransferPlan plan = plan_transfer(change, rank);
  Loader loader(folder, change, parameters);
  loader.load(plan.kept, rank);
  for (const Transfer& transfer : plan.receives) loader.load(transfer.parts, transfer.peer);
}

}  // namespace copus
