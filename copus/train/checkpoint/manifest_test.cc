#include "copus/train/checkpoint/manifest.h"

#include <gtest/gtest.h>

#include "copus/train/checkpoint/test_checkpoints.h"

namespace copus {
namespace {

Manifest example() {
  Manifest manifest = manifest_of(tiny_model(), plan_of("tp=2,pp=2,dp=2,zero=1"), 12);
  manifest.files = {{"shard-0.safetensors", 1000, 0x0123456789abcdefULL},
                    {"shard-1.safetensors", 2000, ~std::uint64_t{0}}};
  return manifest;
}

TEST(Manifest, WhatIsPrintedIsParsedBack) {
  const Manifest manifest = example();
  const std::string text = print_manifest(manifest);
  const Result<Manifest> parsed = parse_manifest(text, "m");
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  EXPECT_EQ(print_manifest(*parsed), text);
  EXPECT_EQ(parsed->model, manifest.model);
  EXPECT_EQ(parsed->plan, manifest.plan);
  EXPECT_EQ(parsed->samples, 96);
  EXPECT_EQ(parsed->files[1].xxh3, ~std::uint64_t{0});
  EXPECT_EQ(parsed->run, manifest.run);
}

TEST(Manifest, EveryFlippedByteIsAnError) {
  const std::string text = print_manifest(example());
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = text;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      EXPECT_FALSE(parse_manifest(damaged, "m").has_value()) << "byte " << i << " bit " << bit;
    }
  }
}

TEST(Manifest, EveryTruncationIsAnError) {
  const std::string text = print_manifest(example());
  for (std::size_t size = 0; size < text.size(); ++size) {
    EXPECT_FALSE(parse_manifest(text.substr(0, size), "m").has_value()) << size;
  }
  EXPECT_FALSE(parse_manifest(text + " ", "m").has_value());
}

// These texts have the right checksum, but wrong fields.
TEST(Manifest, FieldsAreChecked) {
  const auto why = [](const Manifest& manifest) {
    const Result<Manifest> parsed = parse_manifest(print_manifest(manifest), "m");
    return parsed ? std::string() : parsed.error().message;
  };
  const auto changed = [&](const auto& change) {
    Manifest manifest = example();
    change(manifest);
    return why(manifest);
  };
  EXPECT_EQ(why(example()), "");
  EXPECT_TRUE(contains(changed([](Manifest& m) { m.format = 2; }), "format: got 2; want 1"));
  EXPECT_TRUE(contains(changed([](Manifest& m) { m.step = -1; }), "step: got -1"));
  EXPECT_TRUE(contains(changed([](Manifest& m) { m.seq_len = 0; }), "seq_len"));
  EXPECT_TRUE(contains(changed([](Manifest& m) { m.files.clear(); }), "files"));
  EXPECT_TRUE(
      contains(changed([](Manifest& m) { m.files[1].name = "shard-0.safetensors"; }), "twice"));
  for (const char* name : {"", "..", "../x", "/etc/passwd", "a/b", ".hidden", kManifestName}) {
    EXPECT_TRUE(contains(changed([&](Manifest& m) { m.files[0].name = name; }), "same folder"))
        << name;
  }
  EXPECT_TRUE(contains(changed([](Manifest& m) { m.files[0].bytes = 0; }), "bytes"));
  EXPECT_TRUE(contains(changed([](Manifest& m) { m.run = 3; }), "run"));
}

TEST(Manifest, MissingOneIsAnError) {
  const TestFolder folder;
  EXPECT_FALSE(read_manifest(folder.path()).has_value());
}

}  // namespace
}  // namespace copus
