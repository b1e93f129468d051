#include "tools/cli/program_trace/recording.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

namespace rdmaemu::cli {
namespace {

namespace format = layer::trace;

// A record without a body.
std::string RecordAt(uint64_t time) {
  format::RecordHeader header{};
  header.bytes = sizeof header;
  header.kind = static_cast<uint8_t>(format::RecordKind::kEnd) & 0xf;
  header.time = time;
  return {reinterpret_cast<const char*>(&header), sizeof header};
}

// A recording of one thread.
class RecordingTest : public testing::Test {
 protected:
  RecordingTest() {
    std::string path = testing::TempDir() + "/recording-XXXXXX";
    directory_ = mkdtemp(path.data());
    format::Control control{};
    control.magic = format::kMagic;
    Write(format::kControlFile, {reinterpret_cast<const char*>(&control), sizeof control});
  }
  ~RecordingTest() override { std::filesystem::remove_all(directory_); }

  void Write(const std::string& name, const std::string& bytes) {
    std::ofstream(directory_ + "/" + name, std::ios::binary) << bytes;
  }
  void WriteWindow(uint64_t position, const std::string& records) {
    format::WindowHeader header{format::kMagic, 1, 1, 1, 0, position, {}};
    std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
    bytes += records;
    bytes.resize(format::kWindowBytes);
    Write("1-1-1.window", bytes);
  }
  std::vector<uint64_t> Times() {
    std::vector<uint64_t> times;
    const auto recording = Recording::Open(directory_);
    EXPECT_TRUE(recording) << recording.error();
    recording->ForEach([&](const RecordOfThread& each) { times.push_back(each.header->time); });
    return times;
  }

  std::string directory_;
};

TEST_F(RecordingTest, TheWindowFollowsTheLog) {
  Write("1-1-1.log", RecordAt(1) + RecordAt(2));
  WriteWindow(2 * sizeof(format::RecordHeader), RecordAt(3));
  EXPECT_EQ(Times(), (std::vector<uint64_t>{1, 2, 3}));
}

TEST_F(RecordingTest, RecordsAreReadOnceBeforeAndAfterTheLogCounts) {
  // The process ended after the append, and before or after it changed the window's header.
  Write("1-1-1.log", RecordAt(1) + RecordAt(2) + RecordAt(3));
  WriteWindow(sizeof(format::RecordHeader), RecordAt(2) + RecordAt(3));
  EXPECT_EQ(Times(), (std::vector<uint64_t>{1, 2, 3}));
  WriteWindow(3 * sizeof(format::RecordHeader) | format::kIsInLog, RecordAt(2) + RecordAt(3));
  EXPECT_EQ(Times(), (std::vector<uint64_t>{1, 2, 3}));
  WriteWindow(3 * sizeof(format::RecordHeader) | format::kIsInLog, "");
  EXPECT_EQ(Times(), (std::vector<uint64_t>{1, 2, 3}));
}

TEST_F(RecordingTest, APartOfAnAppendThatFailedIsNoRecord) {
  // These records were lost, because an append wrote only a part of them. The window has later
  // records.
  const std::string lost = RecordAt(2) + RecordAt(3).substr(0, 8);
  Write("1-1-1.log", RecordAt(1) + lost);
  WriteWindow(sizeof(format::RecordHeader), "");
  EXPECT_EQ(Times(), (std::vector<uint64_t>{1}));
  WriteWindow(sizeof(format::RecordHeader), RecordAt(4));
  EXPECT_EQ(Times(), (std::vector<uint64_t>{1, 4}));
  // The content of the window is as long as the part.
  Write("1-1-1.log", RecordAt(1) + RecordAt(2));
  EXPECT_EQ(Times(), (std::vector<uint64_t>{1, 4}));
}

TEST_F(RecordingTest, AProcessThatCouldNotOpenItIsNamedWithTheReason) {
  std::filesystem::create_symlink("Permission denied",
                                  directory_ + "/4711" + format::kUnopenedSuffix);
  const auto recording = Recording::Open(directory_);
  ASSERT_TRUE(recording);
  ASSERT_EQ(recording->unopened().size(), 1u);
  EXPECT_EQ(recording->unopened()[0].process, 4711u);
  EXPECT_EQ(recording->unopened()[0].reason, "Permission denied");
}

}  // namespace
}  // namespace rdmaemu::cli
