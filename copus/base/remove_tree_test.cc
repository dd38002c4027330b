#include "copus/base/remove_tree.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "copus/base/test_folder.h"

namespace copus {
namespace {

namespace fs = std::filesystem;

TEST(RemoveTree, LeavesNothingAndFollowsNoLink) {
  const TestFolder folder;
  const fs::path root = fs::path(folder.path()) / "a";
  fs::create_directories(root / "b" / "c");
  std::ofstream(root / "b" / "c" / "file") << "x";
  std::ofstream(fs::path(folder.path()) / "kept") << "x";
  fs::create_symlink(fs::path(folder.path()) / "kept", root / "link");
  std::error_code error;
  remove_tree(root.string(), error);
  EXPECT_FALSE(error) << error.message();
  EXPECT_FALSE(fs::exists(root));
  EXPECT_TRUE(fs::exists(fs::path(folder.path()) / "kept"));
}

TEST(RemoveTree, WhatIsNotThereIsNoError) {
  const TestFolder folder;
  std::error_code error = std::make_error_code(std::errc::io_error);
  remove_tree((fs::path(folder.path()) / "none").string(), error);
  EXPECT_FALSE(error);
}

}  // namespace
}  // namespace copus
