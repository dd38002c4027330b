#include "copus/base/program_file.h"

#include <gtest/gtest.h>

#include "copus/base/test_folder.h"
#include "copus/base/whole_file.h"

namespace copus {
namespace {

namespace fs = std::filesystem;

TEST(ProgramFile, KnowsTheProgramThatRuns) { EXPECT_EQ(own_program().filename(), "base_test"); }

TEST(ProgramFile, LiesBesideTheProgramOrWhereItIsInstalled) {
  const TestFolder folder;
  fs::create_directories(folder.path("bin"));
  fs::create_directories(folder.path("lib/copus"));
  const fs::path program = folder.path("bin/copus");
  EXPECT_EQ(program_file(program, "part"), folder.path("bin/part"));
  ASSERT_TRUE(write_whole_file(folder.path("lib/copus/part"), "installed"));
  EXPECT_EQ(program_file(program, "part"), folder.path("lib/copus/part"));
  EXPECT_EQ(program_file(folder.path("lib/copus/other"), "part"), folder.path("lib/copus/part"));
  ASSERT_TRUE(write_whole_file(folder.path("bin/part"), "built"));
  EXPECT_EQ(program_file(program, "part"), folder.path("bin/part"));
}

TEST(ProgramFile, IsNeverLookedForInTheCurrentFolder) {
  for (const char* program : {"copus", "bin/copus", "./copus", ""}) {
    EXPECT_EQ(program_file(program, "part"), fs::path()) << program;
  }
}

}  // namespace
}  // namespace copus
