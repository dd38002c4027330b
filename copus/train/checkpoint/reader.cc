#include "copus/train/checkpoint/reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <tuple>

#include "copus/base/checksum.h"

namespace copus {
namespace {

constexpr std::int64_t kFloat = sizeof(float);

std::string inside(const std::string& folder, const std::string& name) {
  return (std::filesystem::path(folder) / name).string();
}

// The columns of a tensor as a stripe counts them.
std::int64_t columns_of(const TensorSpec& tensor) {
  return tensor.shape.size() > 1 ? tensor.shape[1] : 1;
}

// The position within a stripe of the tensor's element at this row and column.
std::int64_t index_in(const Stripe& stripe, std::int64_t row, std::int64_t column) {
  return row * stripe.columns + column - stripe.first_column - stripe.begin;
}

Error wrong_size(const std::string& path, std::int64_t bytes, const CheckpointFile& file) {
  return make_error("{}: is damaged: has {} bytes; want {}, as the manifest says", path, bytes,
                    file.bytes);
}

// Checks that the file is there and has its size. Of a file whose size cannot be read, open() will
// say why.
Result<void> check_size(const std::string& path, const CheckpointFile& file) {
  std::error_code failed;
  const std::uintmax_t size = std::filesystem::file_size(path, failed);
  if (failed == std::errc::no_such_file_or_directory) {
    return make_error("{}: is damaged: the file is missing", path);
  }
  if (failed || static_cast<std::int64_t>(size) == file.bytes) return {};
  return wrong_size(path, static_cast<std::int64_t>(size), file);
}

}  // namespace

Result<CheckpointReader> CheckpointReader::open(const std::string& folder) {
  CheckpointReader reader;
  reader.folder_ = folder;
  COPUS_TRY(reader.manifest_, read_manifest(folder));
  const ModelSpec& model = reader.manifest_.model;
  if (model.is_moe() || model.mla.enabled) {
    return error_in(
        folder,
        field_error("model", "got {}; want a dense model without latent attention", model.name));
  }
  for (const CheckpointFile& file : reader.manifest_.files) COPUS_TRY_VOID(reader.add_file(file));
  COPUS_TRY_VOID(reader.check_covered());
  return reader;
}

Result<void> CheckpointReader::add_file(const CheckpointFile& file) {
  const std::string path = inside(folder_, file.name);
  COPUS_TRY_VOID(check_size(path, file));
  COPUS_TRY(SafetensorsFile opened, SafetensorsFile::open(path));
  const SafetensorsHeader& header = opened.header();
  const std::int64_t bytes =
      header.data_begin + (header.arrays.empty() ? 0 : header.arrays.back().end);
  if (bytes != file.bytes) return wrong_size(path, bytes, file);
  for (std::size_t i = 0; i < header.arrays.size(); ++i) {
    const SafetensorsArray& array = header.arrays[i];
    COPUS_TRY(const ShardPart part, parse_part_name(array.name, path));
    if (array.dtype != "F32" || array.end - array.begin != part.stripe.size() * kFloat) {
      return make_error("{}: {}: got {} bytes of {}; want {} of F32", path, array.name,
                        array.end - array.begin, array.dtype, part.stripe.size() * kFloat);
    }
    Pieces& pieces = pieces_[{part.kind, part.tensor}];
    if (pieces.empty()) pieces.emplace_back();
    pieces[0].push_back({part.stripe, files_.size(), i});  // check_covered() makes the lanes
  }
  files_.push_back(std::move(opened));
  return {};
}

// Checks that the files hold every element once. Sorts the stripes into lanes: the lanes must
// follow each other from the first column to the last, and the stripes of a lane from its first
// element to its last.
Result<void> CheckpointReader::check_covered() {
  std::size_t known = 0;
  for (const TensorSpec& tensor : model_tensors(manifest_.model)) {
    const std::int64_t width = columns_of(tensor);
    const std::int64_t rows = element_count(tensor.shape) / width;
    for (const StateArray kind : kStateArrays) {
      if (kind != StateArray::kWeight && !manifest_.optimizer) continue;
      const auto fail = [&](const std::string& why) {
        return make_error("{}: is damaged: {} of {}: {}; want every element once", folder_,
                          to_string(kind), tensor.name, why);
      };
      const auto found = pieces_.find({kind, tensor.name});
      if (found == pieces_.end()) return fail("no file has it");
      ++known;
      Lane all = std::move(found->second[0]);
      std::sort(all.begin(), all.end(),
                [](const Piece& a, const Piece& b) { return a.stripe < b.stripe; });
      Pieces lanes;
      std::int64_t column = 0;
      for (const Piece& piece : all) {
        const Stripe& s = piece.stripe;
        const bool same_lane =
            !lanes.empty() && lanes.back()[0].stripe.first_column == s.first_column;
        if (!same_lane) {
          if (s.first_column != column) {
            return fail(
                fmt::format("its next stripe begins at column {}, not {}", s.first_column, column));
          }
          if (s.columns > width - column) return fail("a stripe has columns beyond its last");
          column += s.columns;
          lanes.emplace_back();
        }
        const Lane& lane = lanes.back();
        const std::int64_t expected = lane.empty() ? 0 : lane.back().stripe.end;
        if (s.begin != expected || (!lane.empty() && s.columns != lane[0].stripe.columns)) {
          return fail(fmt::format("the stripe at element {} does not continue the one up to {}",
                                  s.begin, expected));
        }
        lanes.back().push_back(piece);
      }
      if (column != width) return fail(fmt::format("got only {} of {} columns", column, width));
      for (const Lane& lane : lanes) {
        if (lane.back().stripe.end != rows * lane[0].stripe.columns) {
          return fail(fmt::format("a column range has {} elements, not {}", lane.back().stripe.end,
                                  rows * lane[0].stripe.columns));
        }
      }
      found->second = std::move(lanes);
    }
  }
  if (known == pieces_.size()) return {};
  return make_error("{}: is damaged: {} of its {} arrays are not the model's", folder_,
                    pieces_.size() - known, pieces_.size());
}

Result<void> CheckpointReader::read(StateArray kind, const std::string& tensor,
                                    const Stripe& stripe, std::span<float> out) const {
  COPUS_CHECK(static_cast<std::int64_t>(out.size()) == stripe.size());
  if (kind != StateArray::kWeight && !manifest_.optimizer) {
    std::fill(out.begin(), out.end(), 0.0F);
    return {};
  }
  const auto found = pieces_.find({kind, tensor});
  if (found == pieces_.end()) return make_error("{}: has no tensor {}", folder_, tensor);
  std::int64_t done = 0;
  for (const Lane& lane : found->second) {
    if (overlap({lane[0].stripe.first_column, lane[0].stripe.columns, 0, lane.back().stripe.end},
                stripe)
            .empty()) {
      continue;
    }
    auto piece = std::partition_point(
        lane.begin(), lane.end(), [&](const Piece& p) { return ends_before(p.stripe, stripe); });
    for (; piece != lane.end() && !ends_before(stripe, piece->stripe); ++piece) {
      COPUS_TRY_VOID(read_piece(*piece, stripe, out));
      done += overlap(piece->stripe, stripe).size();
    }
  }
  if (done == stripe.size()) return {};
  return make_error("{}: {} of {}: lacks some of the elements that are to be read", folder_,
                    to_string(kind), tensor);
}

// The overlap is read in pieces that are contiguous on both sides: row by row, or all at once where
// its rows are whole rows of both.
Result<void> CheckpointReader::read_piece(const Piece& piece, const Stripe& wanted,
                                          std::span<float> out) const {
  const Stripe both = overlap(piece.stripe, wanted);
  if (both.empty()) return {};
  const SafetensorsFile& file = files_[piece.file];
  const SafetensorsArray& array = file.header().arrays[piece.array];
  const auto read = [&](std::int64_t from, std::span<float> to) {
    return file.read(array, from * kFloat, std::as_writable_bytes(to));
  };
  const auto from = [&](std::int64_t k) {
    return index_in(piece.stripe, k / both.columns, both.first_column + k % both.columns);
  };
  const auto to = [&](std::int64_t k) {
    return static_cast<std::size_t>(
        index_in(wanted, k / both.columns, both.first_column + k % both.columns));
  };
  const auto size = static_cast<std::size_t>(both.size());
  const bool whole_in_file = both.columns == piece.stripe.columns;
  if (whole_in_file && both.columns == wanted.columns) {
    return read(from(both.begin), out.subspan(to(both.begin), size));
  }
  // Short rows are read together with the elements between them, and then cut out: a read for each
  // row would take longer. Long rows are read one by one.
  constexpr std::int64_t kShortRow = 512, kBuffer = 1 << 18;
  const bool together = whole_in_file || both.columns < kShortRow;
  std::vector<float> buffer;
  for (std::int64_t k = both.begin; k < both.end;) {
    // `end` is the end of this row, or of the last row that the buffer has room for.
    const std::int64_t rows =
        together ? std::max<std::int64_t>(1, kBuffer / piece.stripe.columns) : 1;
    const std::int64_t end = std::min(both.end, (k / both.columns + rows) * both.columns);
    const std::int64_t first = from(k);
    if (!together) {
      COPUS_TRY_VOID(read(first, out.subspan(to(k), static_cast<std::size_t>(end - k))));
      k = end;
      continue;
    }
    buffer.resize(static_cast<std::size_t>(from(end - 1) + 1 - first));
    COPUS_TRY_VOID(read(first, buffer));
    while (k < end) {
      const std::int64_t row_end = std::min(end, (k / both.columns + 1) * both.columns);
      std::copy_n(buffer.begin() + (from(k) - first), row_end - k,
                  out.begin() + static_cast<std::ptrdiff_t>(to(k)));
      k = row_end;
    }
  }
  return {};
}

Result<void> verify_file(const std::string& folder, const CheckpointFile& file) {
  const std::string path = inside(folder, file.name);
  COPUS_TRY_VOID(check_size(path, file));
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return make_error("{}: cannot be opened: {}", path, std::strerror(errno));
  Xxh3 sum;
  std::int64_t bytes = 0;
  std::vector<std::byte> buffer(std::size_t{1} << 20);
  ssize_t n = 0;
  while ((n = ::read(fd, buffer.data(), buffer.size())) != 0) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) break;
    sum.add(std::span(buffer).first(static_cast<std::size_t>(n)));
    bytes += n;
  }
  const int reason = n < 0 ? errno : 0;
  ::close(fd);
  if (reason != 0) return make_error("{}: cannot be read: {}", path, std::strerror(reason));
  if (bytes != file.bytes) return wrong_size(path, bytes, file);
  if (sum.digest() == file.xxh3) return {};
  return make_error("{}: is damaged: its checksum is {}; want {}, as the manifest says", path,
                    checksum_text(sum.digest()), checksum_text(file.xxh3));
}

Result<void> verify(const std::string& folder) {
  COPUS_TRY(const CheckpointReader reader, CheckpointReader::open(folder));
  for (const CheckpointFile& file : reader.manifest().files) {
    COPUS_TRY_VOID(verify_file(folder, file));
  }
  return {};
}

}  // namespace copus
