// Stands in for train.cc where Copus was built without libtorch.
#include "apps/copus/common.h"

namespace copus {

void add_train_command(CLI::App& app, int& exit_code, const std::vector<std::string>&) {
  CLI::App* command = app.add_subcommand("train", "Train a model over ranks (not in this build)");
  command->allow_extras();
  command->callback([&exit_code] {
    exit_code =
        report(make_error("train: this build has no libtorch; want libtorch-dev installed, "
                          "then make build"));
  });
}

}  // namespace copus
