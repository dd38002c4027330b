#include "copus/base/remove_tree.h"

#include <ftw.h>

#include <cerrno>
#include <cstdio>

namespace copus {
namespace {

extern "C" int remove_entry(const char* path, const struct stat* /*status*/, int /*type*/,
                            struct FTW* /*where*/) {
  return std::remove(path) == 0 || errno == ENOENT ? 0 : errno;
}

}  // namespace

void remove_tree(const std::string& path, std::error_code& error) {
  constexpr int kOpenFolders = 16;
  errno = 0;
  const int failed = ::nftw(path.c_str(), remove_entry, kOpenFolders, FTW_DEPTH | FTW_PHYS);
  const int reason = failed > 0 ? failed : failed < 0 ? errno : 0;
  error = reason == 0 || reason == ENOENT ? std::error_code()
                                          : std::error_code(reason, std::generic_category());
}

}  // namespace copus
