#include "copus/train/comm/node_store.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "copus/base/seconds_since.h"

namespace copus {
namespace {

using Blob = std::vector<std::uint8_t>;
using StorePointer = c10::intrusive_ptr<c10d::Store>;
constexpr std::chrono::milliseconds kLimit{20'000};

std::unique_ptr<NodeStoreServer> serve() {
  auto server = NodeStoreServer::start();
  EXPECT_TRUE(server.has_value()) << server.error().message;
  return std::move(server).value();
}

StorePointer join(const NodeStoreServer& server, std::chrono::milliseconds limit = kLimit) {
  const auto store = join_node_store(server.name(), limit);
  EXPECT_TRUE(store.has_value()) << store.error().message;
  return *store;
}

struct Address {
  explicit Address(const std::string& store) {
    name.sun_family = AF_UNIX;
    store.copy(name.sun_path + 1, sizeof name.sun_path - 1);
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + store.size());
  }
  const sockaddr* generic() const { return reinterpret_cast<const sockaddr*>(&name); }
  sockaddr_un name{};
  socklen_t size = 0;
};

TEST(NodeStore, WhatOneMemberSetsAnotherGets) {
  const auto server = serve();
  const StorePointer a = join(*server), b = join(*server);
  const Blob large(3'000'000, 7);
  a->set("key", Blob{1, 0, 255});
  a->set("large", large);
  EXPECT_EQ(b->get("key"), (Blob{1, 0, 255}));
  EXPECT_EQ(b->get("large"), large);
  EXPECT_TRUE(b->check({"key", "large"}));
  EXPECT_FALSE(b->check({"key", "none"}));
  EXPECT_EQ(b->getNumKeys(), 2);
  EXPECT_TRUE(b->deleteKey("key"));
  EXPECT_FALSE(b->deleteKey("key"));
  EXPECT_FALSE(a->check({"key"}));
}

TEST(NodeStore, SumsOfManyMembersLoseNothing) {
  const auto server = serve();
  constexpr int kMembers = 8, kTimes = 200;
  std::vector<std::thread> members;
  for (int i = 0; i < kMembers; ++i) {
    members.emplace_back([&] {
      const StorePointer store = join(*server);
      for (int time = 0; time < kTimes; ++time) store->add("sum", 1);
    });
  }
  for (std::thread& member : members) member.join();
  const StorePointer store = join(*server);
  EXPECT_EQ(store->add("sum", 0), kMembers * kTimes);
  EXPECT_EQ(store->get("sum"), (Blob{'1', '6', '0', '0'}));  // text, as in c10d's stores
  EXPECT_EQ(store->add("sum", -1600), 0);
}

TEST(NodeStore, GetWaitsForWhoeverComesLater) {
  const auto server = serve();
  std::thread late([&] {
    const StorePointer store = join(*server);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    store->set("late", Blob{1});
  });
  EXPECT_EQ(join(*server)->get("late"), Blob{1});
  late.join();
}

TEST(NodeStore, NothingWaitsForever) {
  const auto server = serve();
  const StorePointer store = join(*server, std::chrono::milliseconds(100));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THROW(store->get("never"), std::runtime_error);
  EXPECT_THROW(store->wait({"never"}, std::chrono::milliseconds(50)), std::runtime_error);
  EXPECT_LT(seconds_since(begin).v, 20);
  store->set("still", Blob{1});  // the connection still works
  EXPECT_EQ(store->get("still"), Blob{1});
}

TEST(NodeStore, AMemberHearsThatTheServerIsGone) {
  auto server = serve();
  const std::string name = server->name();
  const StorePointer store = join(*server);
  store->set("key", Blob{1});
  server.reset();
  EXPECT_THROW(store->get("key"), std::runtime_error);
  EXPECT_THROW(store->get("key"), std::runtime_error);
  EXPECT_FALSE(join_node_store(name, kLimit).has_value());
}

// A client that sends nonsense, or half a request and then nothing, does not disturb the members.
TEST(NodeStore, AStrangerDisturbsNobody) {
  const auto server = serve();
  const StorePointer store = join(*server);
  const Address address(server->name());
  for (const std::string& said : {std::string(64, '\xff'), std::string("\x01"), std::string()}) {
    const int stranger = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(::connect(stranger, address.generic(), address.size), 0);
    ASSERT_EQ(::send(stranger, said.data(), said.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(said.size()));
    store->set("key", Blob{2});
    EXPECT_EQ(store->get("key"), Blob{2});
    ::close(stranger);
    EXPECT_EQ(store->get("key"), Blob{2});
  }
}

// Another user who knows the name gets no answer.
TEST(NodeStore, AnotherUserIsTurnedAway) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const auto server = serve();
  join(*server)->set("secret", Blob{42});
  const Address address(server->name());
  const pid_t child = ::fork();
  if (child == 0) {
    // A forked child of a process with threads may only make system calls.
    constexpr uid_t kNobody = 65534;
    char answer = 0;
    const int stranger = ::socket(AF_UNIX, SOCK_STREAM, 0);
    const bool turned_away = ::setuid(kNobody) == 0 &&
                             ::connect(stranger, address.generic(), address.size) == 0 &&
                             ::recv(stranger, &answer, 1, 0) == 0;
    ::_exit(turned_away ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(NodeStore, NamesAreNotGuessed) {
  const auto one = serve(), other = serve();
  EXPECT_NE(one->name(), other->name());
  EXPECT_GE(one->name().size(), 32U);
}

}  // namespace
}  // namespace copus
