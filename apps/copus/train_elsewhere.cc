// `copus` itself has no libtorch, which takes longer to load than a search takes: training lives in
// copus-train, the same program with the engine in it, and this process becomes that one.
#include <unistd.h>

#include <filesystem>

#include "apps/copus/common.h"

namespace copus {

void become_engine(const std::vector<std::string>& argv) {
  const std::filesystem::path self(argv[0]);
  const std::string engine = (self.parent_path() / "copus-train").string();
  std::vector<char*> arguments;
  arguments.reserve(argv.size() + 1);
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  execv(engine.c_str(), arguments.data());  // returns where there is none
}

// Reached only where become_engine() found no engine.
void add_train_command(CLI::App& app, int& exit_code, const std::vector<std::string>&) {
  CLI::App* command = app.add_subcommand("train", "Train a model over ranks");
  command->set_help_flag("");
  command->prefix_command();
  command->callback([&exit_code] {
    exit_code = report(make_error(
        "train: this build has no engine (copus-train); want libtorch-dev installed, then make "
        "build"));
  });
}

}  // namespace copus
