#include "copus/train/launch/slurm_nodes.h"

#include <gtest/gtest.h>

namespace copus {
namespace {

using Names = std::vector<std::string>;

Names expanded(std::string_view list) {
  const Result<Names> names = expand_slurm_nodes(list);
  EXPECT_TRUE(names) << names.error().message;
  return names ? *names : Names();
}

std::string failure(std::string_view list) {
  const Result<Names> names = expand_slurm_nodes(list);
  return names ? "expanded" : names.error().message;
}

TEST(SlurmNodes, NamesWithoutBracketsStayAsTheyAre) {
  EXPECT_EQ(expanded("login1"), Names({"login1"}));
  EXPECT_EQ(expanded("a,b.example.org,c-d_e"), Names({"a", "b.example.org", "c-d_e"}));
}

TEST(SlurmNodes, RangesKeepTheirOrderAndTheirZeros) {
  EXPECT_EQ(expanded("gnode[10,20-22,007-009],login1"),
            Names({"gnode10", "gnode20", "gnode21", "gnode22", "gnode007", "gnode008", "gnode009",
                   "login1"}));
  EXPECT_EQ(expanded("n[8-11]"), Names({"n8", "n9", "n10", "n11"}));
  EXPECT_EQ(expanded("n[098-101]"), Names({"n098", "n099", "n100", "n101"}));
}

TEST(SlurmNodes, OfSeveralBracketsTheLastRunsFastest) {
  EXPECT_EQ(expanded("r[1-2]n[01-02]-ib"), Names({"r1n01-ib", "r1n02-ib", "r2n01-ib", "r2n02-ib"}));
}

TEST(SlurmNodes, RefusesMoreNamesThanAClusterHas) {
  EXPECT_EQ(expanded("n[1-100000]").size(), kMaxSlurmNodes);
  for (const char* list : {"n[1-100001]", "n[1-1000]m[1-101]", "n[1-60000],m[1-60000]",
                           "n[1-60000,1-60000]", "n[0-999999999999999999]"}) {
    EXPECT_NE(failure(list).find("want at most 100000 names"), std::string::npos) << list;
  }
}

TEST(SlurmNodes, RefusesWhatIsNoList) {
  for (const char* list :
       {"", ",", "a,", "n[", "n]", "n[1", "n[1]]", "n[[1]]", "n[]", "n[1,]", "n[a]", "n[3-1]",
        "n[1-]", "n[-1]", "n[1-2-3]", "n 1", "n;rm", "n[1234567890123456789]"}) {
    EXPECT_NE(failure(list), "expanded") << list;
  }
  EXPECT_EQ(failure("n[3-1]"),
            "node list: got \"n[3-1]\"; want numbers or ranges in brackets, not \"3-1\"");
  EXPECT_NE(failure(std::string(300, 'n')), "expanded");
  EXPECT_NE(failure("n[1-2]" + std::string(300, 'n')), "expanded");
}

TEST(SlurmTasks, CountsAreRunLengthEncoded) {
  const auto on_node = [](int node) { return slurm_tasks_on_node("8(x4),2,4(x2)", node).value(); };
  EXPECT_EQ(on_node(0), 8);
  EXPECT_EQ(on_node(3), 8);
  EXPECT_EQ(on_node(4), 2);
  EXPECT_EQ(on_node(6), 4);
  EXPECT_EQ(slurm_tasks_on_node("8(x4),2,4(x2)", 7).error().message,
            "tasks per node: got \"8(x4),2,4(x2)\"; want an entry for node 7");
  for (const char* list : {"", "8(x", "8(x)", "8(4)", "x", "8(x2", "-1"}) {
    EXPECT_FALSE(slurm_tasks_on_node(list, 0)) << list;
  }
}

}  // namespace
}  // namespace copus
