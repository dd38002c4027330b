// Where the ranks of one machine meet: a store that the supervisor serves on a socket of Linux's
// abstract namespace. c10d's TCPStore listens on every network interface and lets anyone in; this
// one can be reached by processes of the same user on this machine alone.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "copus/base/result.h"
#include "copus/train/device/torch_api.h"

namespace copus {

// Serves a store on a thread of its own until it is destroyed.
class NodeStoreServer {
 public:
  static Result<std::unique_ptr<NodeStoreServer>> start();
  ~NodeStoreServer();
  NodeStoreServer(const NodeStoreServer&) = delete;
  NodeStoreServer& operator=(const NodeStoreServer&) = delete;

  // Random. Whoever knows it, and is the same user, may join.
  const std::string& name() const { return name_; }

 private:
  class Loop;
  NodeStoreServer(std::string name, std::unique_ptr<Loop> loop);
  std::string name_;
  std::unique_ptr<Loop> loop_;
};

// A member's side. No call takes longer than `timeout`, except wait() with a time of its own.
Result<c10::intrusive_ptr<c10d::Store>> join_node_store(const std::string& name,
                                                        std::chrono::milliseconds timeout);

}  // namespace copus
