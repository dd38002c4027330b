#include "copus/events/event_log.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "copus/base/json.h"
#include "copus/events/event_json.h"

namespace copus {

std::string events_path(const std::string& run_dir) {
  return (std::filesystem::path(run_dir) / "events.jsonl").string();
}

Result<void> EventFollower::read(const OnEvent& on_event) {
  std::ifstream in(path_, std::ios::binary);
  if (!in || !in.seekg(bytes_)) return {};
  std::string line;
  while (std::getline(in, line) && !in.eof()) {
    bytes_ += static_cast<std::int64_t>(line.size()) + 1;
    const std::string where = fmt::format("{}:{}", path_, ++lines_);
    COPUS_TRY(const Json json, parse_json(line, where));
    COPUS_TRY(const std::optional<TimedEvent> event, parse_event(json, where));
    if (event) COPUS_TRY_VOID(on_event(*event, where));
  }
  if (in.bad()) return make_error("{}: reading failed; want a run's events.jsonl", path_);
  return {};
}

Result<void> read_events(const std::string& path, const OnEvent& on_event) {
  if (!std::ifstream(path)) {
    return make_error("{}: cannot be read; want a run's events.jsonl", path);
  }
  return EventFollower(path).read(on_event);
}

}  // namespace copus
