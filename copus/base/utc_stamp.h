#pragma once

#include <ctime>
#include <string>

namespace copus {

// Now, in UTC, as part of a folder's name: "20260131-235959".
inline std::string utc_stamp() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char stamp[32];
  return {stamp, std::strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &utc)};
}

}  // namespace copus
