#include "copus/train/comm/agree.h"

#include <algorithm>
#include <cstring>

#include "copus/train/device/device.h"

namespace copus {
namespace {

Tensor bytes_of(const std::string& text, std::size_t size) {
  Tensor bytes = at::zeros({static_cast<std::int64_t>(size)}, at::kByte);
  std::memcpy(bytes.data_ptr<std::uint8_t>(), text.data(), std::min(size, text.size()));
  return bytes;
}

// The first character of a result as text. After kFailed come the error's field and message.
constexpr char kDone = '+', kFailed = '-', kEndOfField = '\n';

}  // namespace

std::string first_trouble(const Comm& world, const RankDevice& device, const std::string& mine) {
  constexpr std::size_t kBytes = 256;
  const std::string own = mine.empty() ? "" : fmt::format("rank {}: {}", world.rank(), mine);
  const Tensor said = bytes_of(own.substr(0, kBytes - 1), kBytes).to(torch_device(device));
  const Tensor all = at::zeros({world.size(), static_cast<std::int64_t>(kBytes)}, said.options());
  world.start_all_gather(all, said).wait_on_host();
  const Tensor on_host = all.cpu();
  for (int rank = 0; rank < world.size(); ++rank) {
    const std::string text = reinterpret_cast<const char*>(on_host[rank].data_ptr<std::uint8_t>());
    if (!text.empty()) return text;
  }
  return "";
}

std::string from_rank(int root, const Comm& world, const RankDevice& device,
                      const std::string& mine) {
  const Tensor size = at::full({1}, static_cast<std::int64_t>(mine.size()),
                               at::TensorOptions(at::kLong).device(torch_device(device)));
  world.start_broadcast(size, root).wait_on_host();
  const auto length = static_cast<std::size_t>(size.item<std::int64_t>());
  if (length == 0) return "";
  const Tensor text = bytes_of(mine, length).to(torch_device(device));
  world.start_broadcast(text, root).wait_on_host();
  const Tensor on_host = text.cpu();
  return {reinterpret_cast<const char*>(on_host.data_ptr<std::uint8_t>()), length};
}

std::string result_to_text(const Result<std::string>& result) {
  if (result) return kDone + *result;
  return kFailed + result.error().field + kEndOfField + result.error().message;
}

Result<std::string> result_from_text(const std::string& text) {
  if (text.starts_with(kDone)) return text.substr(1);
  const std::size_t end = text.find(kEndOfField);
  COPUS_CHECK(text.starts_with(kFailed) && end != std::string::npos);
  return Error{text.substr(end + 1), text.substr(1, end - 1)};
}

void tell(const Rendezvous& where, const std::string& key, const std::string& text) {
  if (where.world_size == 1) return;
  where.store->set(key, std::vector<std::uint8_t>(text.begin(), text.end()));
}

std::string hear(const Rendezvous& where, const std::string& key) {
  try {
    const std::vector<std::uint8_t> bytes = where.store->get(key);
    return {bytes.begin(), bytes.end()};
  } catch (const std::exception& error) {
    throw CommError(
        fmt::format("no answer from rank 0 at the ranks' meeting point ({})", first_line(error)));
  }
}

Result<void> on_rank_0(const Rendezvous& where, const std::string& key,
                       const std::function<Result<void>()>& work) {
  if (where.rank == 0) {
    Result<void> done = work();
    tell(where, key, result_to_text(done ? Result<std::string>("") : done.error()));
    return done;
  }
  const Result<std::string> heard = result_from_text(hear(where, key));
  if (heard) return {};
  return error_in("rank 0", heard.error());
}

}  // namespace copus
