// The functions that add the commands to the command line. Each is defined in its command's file.
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
// Prints options as tables, for the documents. --help does not list this command.
void add_options_command(CommandLine& line);
// Prints the manual pages, for the installation. --help does not list this command.
void add_man_command(CommandLine& line);

}  // namespace copus
