#include "copus/train/checkpoint/folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <system_error>

#include "copus/base/remove_tree.h"
#include "copus/base/text.h"
#include "copus/base/whole_file.h"

namespace copus {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStep = "step-";

Error failed(const std::string& path, const char* what, int reason) {
  return make_error("{}: cannot be {}: {}", path, what, std::strerror(reason));
}

// Visits the names in RUN/checkpoints in no particular order; no names if the folder is missing.
template <typename Visit>
Result<void> for_each_name(const std::string& run_dir, Visit visit) {
  const std::string folder = checkpoints_folder(run_dir);
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  if (error == std::errc::no_such_file_or_directory) return {};
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    visit(entries->path().filename().string());
  }
  if (!error) return {};
  return make_error("{}: cannot be read: {}", folder, error.message());
}

// Renames the checkpoint first, so that a removal that is interrupted leaves no partial checkpoint.
Result<void> remove_checkpoint(const std::string& run_dir, std::int64_t step) {
  const std::string folder = checkpoint_folder(run_dir, step);
  const std::string gone =
      (fs::path(checkpoints_folder(run_dir)) / fmt::format(".{}{}.old", kStep, step)).string();
  std::error_code error;
  remove_tree(gone, error);
  if (!error) fs::rename(folder, gone, error);
  if (!error) remove_tree(gone, error);
  if (!error) return {};
  return make_error("{}: cannot be removed: {}", folder, error.message());
}

}  // namespace

std::string checkpoints_folder(const std::string& run_dir) {
  return (fs::path(run_dir) / "checkpoints").string();
}

std::string checkpoint_folder(const std::string& run_dir, std::int64_t step) {
  return (fs::path(checkpoints_folder(run_dir)) / fmt::format("{}{}", kStep, step)).string();
}

std::string partial_folder(const std::string& run_dir, std::int64_t step, std::int64_t attempt) {
  return (fs::path(checkpoints_folder(run_dir)) /
          fmt::format(".{}{}.{}.partial", kStep, step, attempt))
      .string();
}

Result<std::vector<PublishedCheckpoint>> list_checkpoints(const std::string& run_dir) {
  std::vector<PublishedCheckpoint> found;
  COPUS_TRY_VOID(for_each_name(run_dir, [&](const std::string& name) {
    if (!name.starts_with(kStep)) return;
    const Result<std::int64_t> step =
        parse_integer(std::string_view(name).substr(kStep.size()), "step", 0,
                      std::numeric_limits<std::int64_t>::max());
    // Skips "step-007", which would be a second name of step 7.
    if (step && checkpoint_folder("", *step) == (fs::path("checkpoints") / name).string()) {
      found.push_back({*step, checkpoint_folder(run_dir, *step)});
    }
  }));
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.step < b.step; });
  return found;
}

Result<void> prepare_checkpoints(const std::string& run_dir) {
  const std::string folder = checkpoints_folder(run_dir);
  COPUS_TRY_VOID(create_folders(folder));
  // A user or an earlier attempt may have created these folders without syncing their names. A
  // parent of another user may allow us to enter but not to open it; then it cannot be synced.
  COPUS_TRY_VOID(sync_folder(run_dir));
  std::error_code error;
  const fs::path run = (fs::absolute(run_dir, error) / "").parent_path();
  const std::string above = run.parent_path().string();
  if (::access(above.c_str(), R_OK) == 0) COPUS_TRY_VOID(sync_folder(above));
  const std::string probe = (fs::path(folder) / ".writable").string();
  COPUS_TRY_VOID(write_whole_file(probe, ""));
  ::unlink(probe.c_str());
  return {};
}

Result<void> publish(const std::string& partial, const std::string& run_dir,
                     const Manifest& manifest) {
  const std::string folder = checkpoint_folder(run_dir, manifest.step);
  COPUS_TRY_VOID(
      write_whole_file((fs::path(partial) / kManifestName).string(), print_manifest(manifest)));
  COPUS_TRY_VOID(sync_folder(partial));
  // An older checkpoint of the same step changes places with the new one and is removed afterwards,
  // so a complete checkpoint exists at every instant. File systems that cannot exchange names (NFS)
  // need the old one to be removed first.
  if (::renameat2(AT_FDCWD, partial.c_str(), AT_FDCWD, folder.c_str(), RENAME_EXCHANGE) == 0) {
    COPUS_TRY_VOID(sync_folder(checkpoints_folder(run_dir)));
    std::error_code ignored;  // the new one is published; clean_leftovers() removes the rest
    remove_tree(partial, ignored);
    return {};
  }
  std::error_code error;
  if (fs::exists(folder, error)) COPUS_TRY_VOID(remove_checkpoint(run_dir, manifest.step));
  if (::rename(partial.c_str(), folder.c_str()) != 0) return failed(folder, "published", errno);
  return sync_folder(checkpoints_folder(run_dir));
}

std::vector<std::int64_t> to_remove(const std::vector<std::int64_t>& steps,
                                    const Retention& retention, std::int64_t published) {
  std::vector<std::int64_t> gone;
  const auto keep = static_cast<std::size_t>(std::max<std::int64_t>(1, retention.keep));
  for (std::size_t i = 0; i + keep < steps.size(); ++i) {
    const bool milestone = retention.keep_every > 0 && steps[i] % retention.keep_every == 0;
    if (!milestone && steps[i] != published) gone.push_back(steps[i]);
  }
  return gone;
}

Result<void> set_aside(const std::string& run_dir, const std::string& folder) {
  const fs::path from(folder);
  const fs::path to = from.parent_path() / ("damaged-" + from.filename().string());
  std::error_code error;
  remove_tree(to, error);
  if (!error) fs::rename(from, to, error);
  if (error) return make_error("{}: cannot be set aside: {}", folder, error.message());
  return sync_folder(checkpoints_folder(run_dir));
}

Result<void> apply_retention(const std::string& run_dir, const Retention& retention,
                             std::int64_t published) {
  COPUS_TRY(const std::vector<PublishedCheckpoint> found, list_checkpoints(run_dir));
  std::vector<std::int64_t> steps;
  steps.reserve(found.size());
  for (const PublishedCheckpoint& checkpoint : found) steps.push_back(checkpoint.step);
  for (const std::int64_t step : to_remove(steps, retention, published)) {
    COPUS_TRY_VOID(remove_checkpoint(run_dir, step));
  }
  return {};
}

Result<void> clean_leftovers(const std::string& run_dir) {
  std::vector<std::string> left;
  COPUS_TRY_VOID(for_each_name(run_dir, [&](const std::string& name) {
    const std::string path = (fs::path(checkpoints_folder(run_dir)) / name).string();
    const bool ours = name.starts_with(fmt::format(".{}", kStep)) &&
                      (name.ends_with(".partial") || name.ends_with(".old"));
    if (ours) left.push_back(path);
  }));
  Result<void> all;
  for (const std::string& path : left) {
    std::error_code error;
    remove_tree(path, error);
    if (error) all = make_error("{}: cannot be removed: {}", path, error.message());
  }
  return all;
}

}  // namespace copus
