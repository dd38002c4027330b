#include "copus/base/checksum.h"

// Compiles xxHash into this file, so that the program also runs where the library is not installed.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <charconv>

#include "copus/base/text.h"

namespace copus {

struct Xxh3::State {
  XXH3_state_t state;
};

Xxh3::Xxh3() : state_(std::make_unique<State>()) { XXH3_64bits_reset(&state_->state); }
Xxh3::Xxh3(Xxh3&&) noexcept = default;
Xxh3& Xxh3::operator=(Xxh3&&) noexcept = default;
Xxh3::~Xxh3() = default;

void Xxh3::add(std::span<const std::byte> bytes) {
  XXH3_64bits_update(&state_->state, bytes.data(), bytes.size());
}

std::uint64_t Xxh3::digest() const { return XXH3_64bits_digest(&state_->state); }

std::uint64_t xxh3_of(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::string checksum_text(std::uint64_t checksum) { return fmt::format("{:016x}", checksum); }

Result<std::uint64_t> parse_checksum(std::string_view text, std::string_view field) {
  std::uint64_t checksum = 0;
  std::from_chars(text.data(), text.data() + text.size(), checksum, /*base=*/16);
  if (checksum_text(checksum) == text) return checksum;
  return field_error(field, "got \"{}\"; want 16 hexadecimal digits", shortened(text, 40));
}

}  // namespace copus
