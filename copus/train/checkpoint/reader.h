// Reads any part of a checkpoint's state, independently of the layout that wrote it. Reads little
// more than the bytes of that part. Any thread may call it.
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
  // Checks that the manifest is intact, that every file has the right size and a valid header, and
  // that the files' arrays hold every element of the model's tensors exactly once. Does not check
  // the checksums of the files; verify_file() reads a whole file and does.
  static Result<CheckpointReader> open(const std::string& folder);

  const std::string& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }
  // Reads the elements `stripe` of `tensor` (a name of model_tensors()), in the stripe's order. If
  // the checkpoint has only weights, the moments are 0. REQUIRES: `out` has the stripe's size.
  Result<void> read(StateArray kind, const std::string& tensor, const Stripe& stripe,
                    std::span<float> out) const;

 private:
  // A stripe of a tensor, and the array that holds it.
  struct Piece {
    Stripe stripe;
    std::size_t file = 0;
    std::size_t array = 0;  // in the file's header
  };
  // Stripes with the same columns that follow each other without a gap.
  using Lane = std::vector<Piece>;
  // The lanes of a tensor, from its first column to its last.
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

// Reads a whole file of a checkpoint. Returns an error if its checksum differs from `file`.
Result<void> verify_file(const std::string& folder, const CheckpointFile& file);
// Makes all checks of CheckpointReader::open(), then calls verify_file() for every file.
Result<void> verify(const std::string& folder);

}  // namespace copus
