#include "copus/base/program_file.h"

#include <system_error>

namespace copus {

namespace fs = std::filesystem;

fs::path own_program() {
  std::error_code failed;
  fs::path program = fs::read_symlink("/proc/self/exe", failed);
  return failed ? fs::path() : program;
}

fs::path program_file(const fs::path& program, std::string_view name) {
  if (!program.is_absolute()) return {};
  const fs::path folder = program.parent_path();
  const fs::path beside = folder / name;
  std::error_code failed;
  if (fs::exists(beside, failed)) return beside;
  const fs::path installed = folder.parent_path() / "lib" / "copus" / name;
  return fs::exists(installed, failed) ? installed : beside;
}

}  // namespace copus
