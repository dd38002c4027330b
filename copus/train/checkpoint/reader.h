// Reads any part of a checkpoint's state, whatever layout wrote it: only the bytes that are asked
// for. Any thread.
#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "copus/train/checkpoint/shard.h"

namespace copus {

class CheckpointReader {
 public:
  // Checks that the manifest is whole, that every file has its size and an honest header, and that
  // the files' arrays are every element of the model's tensors once. Not the checksums of the
  // files: verify_file() does, by reading all of one.
  static Result<CheckpointReader> open(const std::string& folder);

  const std::string& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }
  // Elements of the whole tensor `tensor` as model_tensors() names it, in the stripe's order.
  // Where the checkpoint has weights alone the moments are 0. REQUIRES: `out` is as long as it.
  Result<void> read(StateArray kind, const std::string& tensor, const Stripe& stripe,
                    std::span<float> out) const;

 private:
  // A run of a tensor, and the array that has it.
  struct Piece {
    Stripe stripe;
    std::size_t file = 0;
    std::size_t array = 0;  // in the file's header
  };
  // Stripes of the same columns, which follow each other without a gap.
  using Lane = std::vector<Piece>;
  // Lanes from the first column to the last.
  using Pieces = std::vector<Lane>;

  CheckpointReader() = default;
  Result<void> add_file(const CheckpointFile& file);
  Result<void> check_covered();
  Result<void> read_piece(const Piece& piece, const Stripe& wanted, std::span<float> out) const;

  std::string folder_;
  Manifest manifest_;
  std::vector<SafetensorsFile> files_;
  std::map<std::pair<StateArray, std::string>, Pieces> pieces_;
};

// Reads a file of a checkpoint whole: an error where its checksum is another.
Result<void> verify_file(const std::string& folder, const CheckpointFile& file);
// All of open(), and every file.
Result<void> verify(const std::string& folder);

}  // namespace copus
