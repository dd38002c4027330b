// The meeting point of the ranks of one machine: a store that the supervisor serves on a socket of
// Linux's abstract namespace. c10d's TCPStore listens on every network interface and accepts
// anyone. Only processes of the same user on this machine can reach this store.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "copus/base/result.h"
#include "copus/train/device/torch_api.h"

namespace copus {

// Serves a store in its own thread until the server is destroyed.
class NodeStoreServer {
 public:
  static Result<std::unique_ptr<NodeStoreServer>> start();
  ~NodeStoreServer();
  NodeStoreServer(const NodeStoreServer&) = delete;
  NodeStoreServer& operator=(const NodeStoreServer&) = delete;

  // A random name. Processes of the same user that know it may join.
  const std::string& name() const { return name_; }

 private:
  class Loop;
  NodeStoreServer(std::string name, std::unique_ptr<Loop> loop);
  std::string name_;
  std::unique_ptr<Loop> loop_;
};

// Connects a member to the store. The server has `timeout` to answer each request. In addition,
// get() and wait() wait up to `timeout`, or wait()'s own time limit, for a rank to set the key.
Result<c10::intrusive_ptr<c10d::Store>> join_node_store(const std::string& name,
                                                        std::chrono::milliseconds timeout);

}  // namespace copus
