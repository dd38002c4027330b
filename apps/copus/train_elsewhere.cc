// copus train in the program without the engine: replaces this process by copus-train, which is the
// same program with the engine. `copus` itself does not link libtorch, because libtorch takes
// longer to load than a search takes.
#include <unistd.h>

#include "apps/copus/common.h"
#include "apps/copus/train.h"
#include "copus/base/program_file.h"

namespace copus {

int train(TrainRequest /*request*/, TrainArgs& /*args*/, const std::vector<std::string>& command) {
  const std::string engine = program_file(command.front(), "copus-train").string();
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (const std::string& each : command) arguments.push_back(const_cast<char*>(each.c_str()));
  arguments.push_back(nullptr);
  execv(engine.c_str(), arguments.data());  // returns only if it cannot start the program
  return report(
      field_error("train",
                  "the engine (copus-train) is not installed; want the package copus-train, or "
                  "libtorch-dev and then make build"));
}

}  // namespace copus
