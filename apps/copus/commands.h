// One function per command's file: each states its command.
#pragma once

namespace copus {

class CommandLine;

void add_plan_command(CommandLine& line);
void add_predict_command(CommandLine& line);
void add_traffic_command(CommandLine& line);
void add_validate_command(CommandLine& line);
void add_data_command(CommandLine& line);
void add_train_command(CommandLine& line);
void add_compare_command(CommandLine& line);
void add_checkpoint_command(CommandLine& line);
void add_completion_command(CommandLine& line);
// Not shown: the options as tables, for documents.
void add_options_command(CommandLine& line);
// Not shown: the manual pages, for the installation.
void add_man_command(CommandLine& line);

}  // namespace copus
