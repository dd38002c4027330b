#include "copus/train/checkpoint/saver.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>
#include <limits>
#include <system_error>
#include <thread>

#include "copus/base/checksum.h"
#include "copus/base/remove_tree.h"
#include "copus/base/seconds_since.h"
#include "copus/base/whole_file.h"

namespace copus {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// A rank says by one of these, whole when it is there, that its shard is on disk or will not be.
std::string marker(const std::string& partial, int rank, const char* what) {
  return (fs::path(partial) / fmt::format("shard-{}.{}", rank, what)).string();
}

Result<CheckpointFile> read_marker(const std::string& path) {
  COPUS_TRY(const Json json, read_json_file(path));
  FieldReader fields(json, path);
  CheckpointFile file;
  file.name = fields.text("name");
  file.bytes = fields.integer("bytes", 1, std::numeric_limits<std::int64_t>::max());
  const std::string xxh3 = fields.text("xxh3");
  COPUS_TRY_VOID(fields.finish());
  COPUS_TRY(file.xxh3, parse_checksum(xxh3, path + ": xxh3"));
  return file;
}

}  // namespace

Saver::~Saver() {
  give_up_.store(true);
  if (running_.valid()) running_.wait();
}

void Saver::start(SaveJob job) {
  COPUS_CHECK(!busy());
  if (options_.rank == 0 && !failed_.empty()) {
    // A rank that was late may have written there after it was removed.
    std::error_code ignored;
    remove_tree(failed_, ignored);
  }
  const std::string partial = partial_folder(options_.run_dir, job.manifest.step, attempts_++);
  running_ = std::async(std::launch::async,
                        [this, job = std::move(job), partial] { return run(job, partial); });
}

std::optional<SaveOutcome> Saver::poll() {
  if (!busy() || running_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    return std::nullopt;
  }
  return take();
}

std::optional<SaveOutcome> Saver::wait() {
  if (!busy()) return std::nullopt;
  return take();
}

std::optional<SaveOutcome> Saver::take() {
  SaveOutcome outcome = running_.get();
  failed_ = outcome.error.empty() ? "" : outcome.partial;
  return outcome;
}

SaveOutcome Saver::run(const SaveJob& job, const std::string& partial) const {
  const auto begin = Clock::now();
  SaveOutcome outcome;
  outcome.partial = partial;
  outcome.step = job.manifest.step;
  outcome.samples = job.manifest.samples;
  outcome.folder = checkpoint_folder(options_.run_dir, job.manifest.step);
  try {
    if (job.ready.valid()) job.ready.get();
    const Result<std::int64_t> bytes = write(job, partial, begin, outcome);
    if (bytes) {
      outcome.bytes = *bytes;
    } else {
      outcome.error = bytes.error().message;
    }
  } catch (const std::exception& error) {
    outcome.error = error.what();  // no memory for a header, say
  }
  std::error_code ignored;
  if (!outcome.error.empty() && options_.rank == 0) remove_tree(partial, ignored);
  if (!outcome.error.empty() && options_.rank != 0) {
    // On a full disk an empty marker may still be made: that it is there says enough.
    (void)write_whole_file(marker(partial, options_.rank, "failed"), outcome.error);
  }
  outcome.write = seconds_since(begin);
  return outcome;
}

Result<std::int64_t> Saver::write(const SaveJob& job, const std::string& partial,
                                  Clock::time_point begin, SaveOutcome& outcome) const {
  std::error_code error;
  fs::create_directories(partial, error);
  if (error) return make_error("{}: cannot be created: {}", partial, error.message());
  COPUS_TRY(const CheckpointFile mine,
            write_shard(partial, shard_name(options_.rank), job.parts, job.data));
  if (options_.rank != 0) {
    const Json json = {
        {"name", mine.name}, {"bytes", mine.bytes}, {"xxh3", checksum_text(mine.xxh3)}};
    COPUS_TRY_VOID(write_whole_file(marker(partial, options_.rank, "done"), json.dump()));
    return mine.bytes;
  }
  Manifest manifest = job.manifest;
  manifest.files = {mine};
  COPUS_TRY(const std::vector<CheckpointFile> others, gather(partial, begin));
  manifest.files.insert(manifest.files.end(), others.begin(), others.end());
  COPUS_TRY_VOID(publish(partial, options_.run_dir, manifest));
  // It is there: what fails now takes nothing from it.
  const Result<void> tidied = apply_retention(options_.run_dir, options_.retention, manifest.step);
  if (!tidied) outcome.warning = tidied.error().message;
  std::int64_t bytes = 0;
  for (const CheckpointFile& file : manifest.files) bytes += file.bytes;
  return bytes;
}

Result<std::vector<CheckpointFile>> Saver::gather(const std::string& partial,
                                                  Clock::time_point begin) const {
  std::vector<CheckpointFile> files;
  auto nap = std::chrono::milliseconds(1);
  for (int rank = 1; rank < options_.ranks;) {
    const std::string done = marker(partial, rank, "done");
    std::error_code ignored;
    if (fs::exists(done, ignored)) {
      COPUS_TRY(CheckpointFile file, read_marker(done));
      ::unlink(done.c_str());
      files.push_back(std::move(file));
      ++rank;
      continue;
    }
    // Any rank's failure ends it, not only the next one's.
    for (int other = rank; other < options_.ranks; ++other) {
      const std::string path = marker(partial, other, "failed");
      if (!fs::exists(path, ignored)) continue;
      const Result<std::string> why = read_json_text(path);
      return make_error("rank {}: {}", other,
                        why && !why->empty() ? *why : "could not write its shard");
    }
    if (give_up_.load()) return make_error("the run ended before rank {} had written", rank);
    if (seconds_since(begin) > options_.wait) {
      return make_error(
          "rank {}: its shard did not come to {} in {:.0f} s; want a run directory that all nodes "
          "share, or a longer --timeout",
          rank, partial, options_.wait.v);
    }
    std::this_thread::sleep_for(nap);
    nap = std::min(2 * nap, std::chrono::milliseconds(50));
  }
  return files;
}

}  // namespace copus
