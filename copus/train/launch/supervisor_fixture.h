// A fixture that runs shell scripts as ranks. Every time limit is far above the time that a run
// takes. The limits only keep a test that fails from hanging.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "copus/base/seconds_since.h"
#include "copus/base/text.h"
#include "copus/train/launch/supervisor.h"

namespace copus {

class SupervisorTest : public testing::Test {
 protected:
  static constexpr Seconds kLong{60};  // how long a script sleeps that the supervisor must end

  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              fmt::format("copus_supervisor_{}_{}", ::getpid(),
                          testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
    ::setenv("DIR", folder_.c_str(), 1);
    started_ = std::chrono::steady_clock::now();
  }
  void TearDown() override {
    EXPECT_LT(elapsed(), kLong / 2) << "something was waited for that should have been ended";
    std::filesystem::remove_all(folder_);
  }

  static SupervisorOptions script(int ranks, const std::string& text, Seconds grace = kLong) {
    return {ranks, {"/bin/sh", "-c", text}, 29555, grace};
  }

  // Runs the script in every rank. Afterwards out_ and err_ hold what the ranks wrote.
  SupervisorOutcome run(const SupervisorOptions& options) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const Result<SupervisorOutcome> outcome = supervise(options);
    out_ = testing::internal::GetCapturedStdout();
    err_ = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(outcome) << outcome.error().message;
    return outcome ? *outcome : SupervisorOutcome();
  }

  std::vector<std::string> err_lines() const {
    std::vector<std::string> lines;
    for (const std::string_view line : split(err_, '\n')) lines.emplace_back(line);
    EXPECT_EQ(lines.back(), "") << "an unfinished line";
    lines.pop_back();
    return lines;
  }

  Seconds elapsed() const { return seconds_since(started_); }

  static bool eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < 2000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  // Returns the process number that a script wrote to a file of the folder; 0 before that.
  pid_t pid_in(const std::string& name) const {
    pid_t pid = 0;
    std::ifstream(folder_ / name) >> pid;
    return pid;
  }

  // Returns whether the process has ended, reaped or not.
  static bool gone(pid_t pid) {
    if (::kill(pid, 0) != 0) return true;
    std::ifstream file(fmt::format("/proc/{}/stat", pid));
    std::string stat;
    std::getline(file, stat);
    const std::size_t name_end = stat.rfind(')');
    return name_end == std::string::npos || stat.substr(name_end, 3) == ") Z";
  }

  std::filesystem::path folder_;  // $DIR in scripts
  std::string out_;
  std::string err_;

 private:
  std::chrono::steady_clock::time_point started_;
};

}  // namespace copus
