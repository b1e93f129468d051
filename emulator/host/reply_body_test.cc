#include "emulator/host/calls/reply_body.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace rdmaemu {
namespace {

constexpr size_t kFits = ReplyBody::kInline, kTooLong = kFits + 1;

std::vector<std::byte> Bytes(size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; i++) bytes[i] = static_cast<std::byte>(i % 251 + 1);
  return bytes;
}
std::vector<std::byte> Read(const ReplyBody& body) { return {body.begin(), body.end()}; }

class ReplyBodyTest : public ::testing::TestWithParam<size_t> {
 protected:
  ReplyBodyTest() { body_.assign(bytes_); }
  const std::vector<std::byte> bytes_ = Bytes(GetParam());
  ReplyBody body_;
};

TEST_P(ReplyBodyTest, HoldsWhatItIsGiven) {
  EXPECT_EQ(Read(body_), bytes_);
  EXPECT_EQ(body_.size(), GetParam());
  EXPECT_EQ(body_.empty(), GetParam() == 0);
  body_.clear();
  EXPECT_TRUE(body_.empty());
}

TEST_P(ReplyBodyTest, CopiesAndMoves) {
  ReplyBody copy(body_);
  EXPECT_EQ(Read(copy), bytes_);
  EXPECT_EQ(Read(body_), bytes_);
  ReplyBody moved(std::move(copy));
  EXPECT_EQ(Read(moved), bytes_);
  copy = moved;
  EXPECT_EQ(Read(copy), bytes_);
  moved = ReplyBody();
  EXPECT_TRUE(moved.empty());
  moved = std::move(copy);
  EXPECT_EQ(Read(moved), bytes_);
}

TEST_P(ReplyBodyTest, ResizingKeepsTheBeginningAndClearsTheRest) {
  for (const size_t size : {size_t{0}, size_t{1}, kFits, kTooLong, 3 * kFits}) {
    std::vector<std::byte> expected = bytes_;
    expected.resize(size);
    ReplyBody resized = body_;
    resized.resize(size);
    EXPECT_EQ(Read(resized), expected) << size;
    expected.resize(kFits);
    resized.resize(kFits);
    EXPECT_EQ(Read(resized), expected) << size << ", then back";
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, ReplyBodyTest,
                         ::testing::Values(0, 1, kFits - 1, kFits, kTooLong, 2 * kFits));

}  // namespace
}  // namespace rdmaemu
