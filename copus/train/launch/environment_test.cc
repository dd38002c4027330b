#include "copus/train/launch/environment.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

namespace copus {
namespace {

using Variables = std::map<std::string, std::string>;

Result<std::optional<RankEnvironment>> read(const Variables& variables) {
  return rank_environment([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

RankEnvironment found(const Variables& variables) {
  const auto env = read(variables);
  EXPECT_TRUE(env) << env.error().message;
  EXPECT_TRUE(env && env->has_value());
  return env ? env->value_or(RankEnvironment()) : RankEnvironment();
}

bool none(const Variables& variables) {
  const auto env = read(variables);
  return env && !env->has_value();
}

std::string failure(const Variables& variables) {
  const auto env = read(variables);
  return env ? "read" : env.error().message;
}

Variables with(Variables base, const Variables& changes) {
  for (const auto& [name, value] : changes) base[name] = value;
  return base;
}

Variables without(Variables base, const std::string& name) {
  base.erase(name);
  return base;
}

const Variables kTorchrun = {{"RANK", "5"},          {"WORLD_SIZE", "16"},
                             {"LOCAL_RANK", "1"},    {"LOCAL_WORLD_SIZE", "4"},
                             {"MASTER_ADDR", "n01"}, {"MASTER_PORT", "29400"}};

const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "3"},
                            {"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}};

const Variables kSlurm = {{"SLURM_PROCID", "9"},
                          {"SLURM_NTASKS", "10"},
                          {"SLURM_LOCALID", "1"},
                          {"SLURM_NODEID", "2"},
                          {"SLURM_STEP_TASKS_PER_NODE", "4(x2),2"},
                          {"SLURM_JOB_NODELIST", "gnode[007-009]"},
                          {"SLURM_JOB_ID", "1234567"}};

TEST(RankEnvironment, NoLauncherIsNoRank) {
  EXPECT_TRUE(none({}));
  EXPECT_TRUE(none({{"WORLD_SIZE", "8"}, {"MASTER_ADDR", "n01"}}));
}

TEST(RankEnvironment, TorchrunSaysAll) {
  const RankEnvironment env = found(kTorchrun);
  EXPECT_EQ(env.rank, 5);
  EXPECT_EQ(env.world_size, 16);
  EXPECT_EQ(env.local_rank, 1);
  EXPECT_EQ(env.local_world_size, 4);
  EXPECT_EQ(env.master_address, "n01");
  EXPECT_EQ(env.master_port, 29400);
  EXPECT_FALSE(env.store_is_served);
  EXPECT_EQ(env.launcher, Launcher::kTorchrun);
}

TEST(RankEnvironment, TheLaunchersStoreIsUsedWhenItSaysSo) {
  EXPECT_TRUE(found(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}})).store_is_served);
  EXPECT_FALSE(found(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}})).store_is_served);
  EXPECT_EQ(found(with(kTorchrun, {{"COPUS_LAUNCHED", "1"}})).launcher, Launcher::kCopus);
}

TEST(RankEnvironment, RanksOfOneNodeNeedNoPort) {
  const Variables copus = with(without(kTorchrun, "MASTER_PORT"),
                               {{"COPUS_LAUNCHED", "1"}, {"COPUS_NODE_STORE", "copus-1"}});
  EXPECT_EQ(found(copus).node_store, "copus-1");
  EXPECT_EQ(found(kTorchrun).node_store, "");
}

// Only copus train serves such a store. Without it, the variable is left from somewhere else.
TEST(RankEnvironment, AnotherLaunchersRanksMeetAtItsPort) {
  EXPECT_EQ(found(with(kTorchrun, {{"COPUS_NODE_STORE", "copus-1"}})).node_store, "");
  EXPECT_EQ(
      failure(with(without(kTorchrun, "MASTER_PORT"), {{"COPUS_NODE_STORE", "copus-1"}})),
      "MASTER_PORT: not set, but WORLD_SIZE is 16; want the host and port where the ranks meet");
}

TEST(RankEnvironment, WithoutLocalVariablesThereIsOneNode) {
  const RankEnvironment env = found(without(without(kTorchrun, "LOCAL_RANK"), "LOCAL_WORLD_SIZE"));
  EXPECT_EQ(env.local_rank, 5);
  EXPECT_EQ(env.local_world_size, 16);
  EXPECT_EQ(found(without(kTorchrun, "LOCAL_RANK")).local_rank, 1);  // 5 mod 4
}

TEST(RankEnvironment, OneProcessNeedsNoMeetingPoint) {
  const RankEnvironment env = found({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  EXPECT_EQ(env.master_port, 0);
  EXPECT_EQ(env.master_address, "127.0.0.1");
  EXPECT_EQ(failure(without(kTorchrun, "MASTER_ADDR")),
            "MASTER_ADDR: not set, but WORLD_SIZE is 16; want the host and port where the ranks "
            "meet");
  EXPECT_EQ(failure(without(kTorchrun, "MASTER_PORT")),
            "MASTER_PORT: not set, but WORLD_SIZE is 16; want the host and port where the ranks "
            "meet");
}

TEST(RankEnvironment, ContradictionsNameTheVariableAndItsValue) {
  EXPECT_EQ(failure(with(kTorchrun, {{"RANK", "16"}})),
            "RANK: got 16; want less than WORLD_SIZE (16)");
  EXPECT_EQ(failure(with(kTorchrun, {{"LOCAL_RANK", "4"}})),
            "LOCAL_RANK: got 4; want less than LOCAL_WORLD_SIZE (4)");
  EXPECT_EQ(failure(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "17"}})),
            "LOCAL_WORLD_SIZE: got 17; want at most WORLD_SIZE (16)");
  EXPECT_EQ(failure(without(kTorchrun, "WORLD_SIZE")),
            "WORLD_SIZE: not set, but RANK is 5; want both");
  for (const char* value : {"-1", "x", "", "1 ", "1.0", "99999999999999999999"}) {
    for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT"}) {
      const std::string message = failure(with(kTorchrun, {{name, value}}));
      EXPECT_NE(message.find(name), std::string::npos) << message;
      EXPECT_NE(message.find(value), std::string::npos) << message;
    }
  }
  EXPECT_NE(failure(with(kTorchrun, {{"MASTER_PORT", "65536"}})), "read");
}

TEST(RankEnvironment, AnErrorTellsTheVariableBesideTheMessage) {
  const auto field_of = [](const Variables& variables) { return read(variables).error().field; };
  EXPECT_EQ(field_of(with(kTorchrun, {{"RANK", "16"}})), "RANK");
  EXPECT_EQ(field_of(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "17"}})), "LOCAL_WORLD_SIZE");
  EXPECT_EQ(field_of(without(kTorchrun, "WORLD_SIZE")), "WORLD_SIZE");
  EXPECT_EQ(field_of(without(kTorchrun, "MASTER_ADDR")), "MASTER_ADDR");
  EXPECT_EQ(field_of(with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                     {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}})),
            "MASTER_ADDR");
  EXPECT_EQ(field_of(without(kSlurm, "SLURM_JOB_NODELIST")), "SLURM_STEP_NODELIST");
}

TEST(RankEnvironment, OpenMpiOnOneNodeMeetsLocally) {
  const RankEnvironment env = found(kOpenMpi);
  EXPECT_EQ(env.rank, 3);
  EXPECT_EQ(env.world_size, 4);
  EXPECT_EQ(env.local_rank, 3);
  EXPECT_EQ(env.local_world_size, 4);
  EXPECT_EQ(env.master_address, "127.0.0.1");
  EXPECT_EQ(env.master_port, 29500);
  EXPECT_EQ(env.launcher, Launcher::kOpenMpi);
}

TEST(RankEnvironment, OpenMpiOnSeveralNodesMustSayWhere) {
  const Variables several =
      with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}});
  EXPECT_EQ(failure(several),
            "MASTER_ADDR: not set, but 2 of 4 ranks are on other nodes; want the host of rank 0 "
            "(mpirun -x MASTER_ADDR=HOST)");
  const RankEnvironment env =
      found(with(several, {{"MASTER_ADDR", "n01"}, {"MASTER_PORT", "1234"}}));
  EXPECT_EQ(env.master_address, "n01");
  EXPECT_EQ(env.master_port, 1234);
}

TEST(RankEnvironment, SlurmsFirstHostIsTheMaster) {
  const RankEnvironment env = found(kSlurm);
  EXPECT_EQ(env.rank, 9);
  EXPECT_EQ(env.world_size, 10);
  EXPECT_EQ(env.local_rank, 1);
  EXPECT_EQ(env.local_world_size, 2);
  EXPECT_EQ(env.master_address, "gnode007");
  EXPECT_EQ(env.master_port, 20000 + 1234567 % 20000);
  EXPECT_EQ(env.launcher, Launcher::kSlurm);
}

TEST(RankEnvironment, WhatTheUserSetsWinsOverSlurms) {
  const RankEnvironment env =
      found(with(kSlurm, {{"MASTER_ADDR", "ib0"}, {"MASTER_PORT", "1234"}}));
  EXPECT_EQ(env.master_address, "ib0");
  EXPECT_EQ(env.master_port, 1234);
}

TEST(RankEnvironment, SlurmCountsOnlyInsideAStepOfSeveralTasks) {
  EXPECT_TRUE(none(without(kSlurm, "SLURM_PROCID")));
  EXPECT_TRUE(none({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}}));
  EXPECT_TRUE(none({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_NTASKS", "8"}}));
  // A batch script that runs the program itself, and the same script with srun before it.
  const Variables batch = with(kSlurm, {{"ENVIRONMENT", "BATCH"}, {"SLURM_PROCID", "0"}});
  EXPECT_TRUE(none(batch));
  EXPECT_EQ(found(with(batch, {{"SLURM_STEP_NUM_TASKS", "10"}})).world_size, 10);
}

TEST(RankEnvironment, SlurmsContradictionsNameTheVariable) {
  EXPECT_EQ(failure(with(kSlurm, {{"SLURM_PROCID", "10"}})),
            "SLURM_PROCID: got 10; want less than SLURM_NTASKS (10)");
  EXPECT_NE(failure(with(kSlurm, {{"SLURM_NTASKS", "many"}})).find("SLURM_NTASKS: got \"many\""),
            std::string::npos);
  EXPECT_NE(failure(with(kSlurm, {{"SLURM_JOB_NODELIST", "n["}})).find("SLURM_JOB_NODELIST: "),
            std::string::npos);
  EXPECT_NE(failure(without(kSlurm, "SLURM_JOB_NODELIST")).find("want one of them"),
            std::string::npos);
  EXPECT_NE(failure(with(kSlurm, {{"SLURM_NODEID", "3"}})).find("SLURM_STEP_TASKS_PER_NODE: "),
            std::string::npos);
}

TEST(RankEnvironment, TorchrunComesBeforeOpenMpiBeforeSlurm) {
  EXPECT_EQ(found(with(with(kSlurm, kOpenMpi), kTorchrun)).launcher, Launcher::kTorchrun);
  EXPECT_EQ(found(with(kSlurm, kOpenMpi)).launcher, Launcher::kOpenMpi);
}

TEST(EnvironmentVariable, TellsUnsetFromEmpty) {
  ::setenv("COPUS_TEST_VARIABLE", "", 1);
  EXPECT_EQ(environment_variable("COPUS_TEST_VARIABLE"), "");
  ::unsetenv("COPUS_TEST_VARIABLE");
  EXPECT_EQ(environment_variable("COPUS_TEST_VARIABLE"), std::nullopt);
}

}  // namespace
}  // namespace copus
