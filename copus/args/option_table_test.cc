#include "copus/args/option_table.h"

#include <gtest/gtest.h>

namespace copus {
namespace {

struct TableArgs : OptionGroup {
  Option<std::int64_t> seed{this, "--seed", integer(0, 9), "of the weights", 1};
  Option<std::string> device{this, "--device", word({"cpu", "cuda"}), "where (see --seed)", "cpu"};
  Option<std::string> model{this, "--model", text("NAME|FILE"), "what to train", Required()};
  Option<std::int64_t> elastic{this, "--elastic", or_bare(integer(1, 4), "1"), "go on with fewer",
                               Otherwise{"as many as --ranks"}};
  OptionGroup inner{this, "Inner"};
  Option<bool> json{&inner, "--json", flag(), "print JSON", false};
};

TEST(OptionTable, HelpHasRangeAndDefault) {
  const TableArgs args;
  EXPECT_EQ(help_text(args.seed, 80), "of the weights (0 to 9) [1]");
  EXPECT_EQ(value_text(args.seed), "N");
  EXPECT_EQ(help_text(args.device, 80), "where (see --seed) [cpu]");
  EXPECT_EQ(value_text(args.device), "cpu|cuda");
  EXPECT_EQ(value_text(args.elastic), "[N]");
  EXPECT_EQ(help_text(args.json, 80), "print JSON");
  EXPECT_EQ(value_text(args.json), "");
}

TEST(OptionTable, HelpIsBrokenIntoLines) {
  const TableArgs args;
  EXPECT_EQ(help_text(args.seed, 10), "of the\nweights (0\nto 9) [1]");
}

TEST(OptionTable, DocumentsHaveALineForEachOptionUnderATitle) {
  const TableArgs args;
  EXPECT_EQ(markdown_table(args, ""),
            "| option | values | default | what it is for |\n"
            "| --- | --- | --- | --- |\n"
            "| `--seed N` | 0 to 9 | 1 | of the weights |\n"
            "| `--device` | `cpu`, `cuda` | cpu | where (see `--seed`) |\n"
            "| `--model NAME\\|FILE` |  | required | what to train |\n"
            "| `--elastic [N]` | 1 to 4 | as many as `--ranks` | go on with fewer |\n");
  EXPECT_NE(markdown_table(args, "Inner").find("| `--json` |  |  | print JSON |\n"),
            std::string::npos);
}

}  // namespace
}  // namespace copus
