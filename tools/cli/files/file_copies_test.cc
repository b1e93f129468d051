// Copies of a tree whose contents change and whose names are hostile.
#include "tools/cli/files/file_copies.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

namespace rdmaemu::cli {
namespace {

namespace fs = std::filesystem;

class FakeTree final : public FileTree {
 public:
  Result<HostFile> At(std::string_view path) const override {
    const auto found = files.find(std::string(path));
    if (found == files.end()) return Fail(ENOENT);
    return found->second;
  }
  void AddDirectory(const std::string& path,
                    std::vector<std::pair<std::string, FileKind>> entries = {}) {
    HostFile& file = files[path];
    file = {};
    file.kind = FileKind::kDirectory;
    file.mode = 0755;
    file.entries = std::move(entries);
  }
  void Add(const std::string& path, FileKind kind, const std::string& text) {
    HostFile& file = files[path];
    file = {};
    file.kind = kind;
    file.mode = 0444;
    file.text = text;
  }
  std::map<std::string, HostFile> files;
};

class FileCopiesTest : public ::testing::Test {
 protected:
  FileCopiesTest() {
    tree_.AddDirectory("/", {{"a", FileKind::kDirectory}});
    tree_.AddDirectory("/a", {{"link", FileKind::kLink}, {"real", FileKind::kDirectory}});
    tree_.AddDirectory("/a/real", {{"text", FileKind::kText}});
    tree_.Add("/a/link", FileKind::kLink, "real");
    tree_.Add("/a/real/text", FileKind::kText, "one\n");
  }
  ~FileCopiesTest() override { fs::remove_all(directory_); }

  std::string Read(const std::string& path) const {
    std::ostringstream text;
    text << std::ifstream(directory_ + "/tree" + path).rdbuf();
    return text.str();
  }
  std::string Names(const std::string& path) const {
    std::string names;
    for (const auto& entry : fs::directory_iterator(directory_ + "/tree" + path)) {
      names += entry.path().filename().string() + " ";
    }
    return names;
  }

  std::string directory_ = [] {
    std::string made = ::testing::TempDir() + "copies-XXXXXX";
    return std::string(mkdtemp(made.data()));
  }();
  FakeTree tree_;
  FileCopies copies_{tree_, directory_};
};

TEST_F(FileCopiesTest, AFileBehindALinkIsCopiedWithTheLink) {
  const FilesReply reply = copies_.Update("/a//./link/../link/text");
  EXPECT_EQ(reply.error, 0);
  EXPECT_EQ(reply.is_directory, 0u);
  EXPECT_EQ(reply.mode, 0444u);
  EXPECT_EQ(Read("/a/real/text"), "one\n");
  EXPECT_EQ(fs::read_symlink(directory_ + "/tree/a/link"), "real");
}

TEST_F(FileCopiesTest, ANewTextReplacesTheOldFileInOneStep) {
  copies_.Update("/a/real/text");
  std::ifstream open_before(directory_ + "/tree/a/real/text");
  tree_.Add("/a/real/text", FileKind::kText, "two\n");
  EXPECT_EQ(copies_.Update("/a/real/text").error, 0);
  EXPECT_EQ(Read("/a/real/text"), "two\n");
  std::string line;
  std::getline(open_before, line);
  EXPECT_EQ(line, "one");
}

TEST_F(FileCopiesTest, TheSameTextKeepsItsFile) {
  struct stat before, after;
  copies_.Update("/a/real/text");
  stat((directory_ + "/tree/a/real/text").c_str(), &before);
  copies_.Update("/a/real/text");
  stat((directory_ + "/tree/a/real/text").c_str(), &after);
  EXPECT_EQ(before.st_ino, after.st_ino);
}

TEST_F(FileCopiesTest, AListShowsWhatIsThereNow) {
  EXPECT_EQ(copies_.Update("/a/link").error, 0);
  EXPECT_EQ(Names("/a/real"), "text ");
  tree_.AddDirectory("/a/real", {{"other", FileKind::kText}});
  tree_.files.erase("/a/real/text");
  EXPECT_EQ(copies_.Update("/a/real").error, 0);
  EXPECT_EQ(Names("/a/real"), "other ");
}

TEST_F(FileCopiesTest, WhatIsGoneHasNoCopy) {
  copies_.Update("/a/real/text");
  tree_.files.erase("/a/real/text");
  tree_.files.erase("/a/real");
  EXPECT_EQ(copies_.Update("/a/real/text").error, ENOENT);
  EXPECT_FALSE(fs::exists(directory_ + "/tree/a/real"));
}

TEST_F(FileCopiesTest, AFileMayBecomeADirectoryAndBack) {
  copies_.Update("/a/real/text");
  tree_.AddDirectory("/a/real/text", {{"inner", FileKind::kText}});
  tree_.Add("/a/real/text/inner", FileKind::kText, "x");
  EXPECT_EQ(copies_.Update("/a/real/text/inner").error, 0);
  EXPECT_EQ(Read("/a/real/text/inner"), "x");
  tree_.Add("/a/real/text", FileKind::kText, "y");
  EXPECT_EQ(copies_.Update("/a/real/text").error, 0);
  EXPECT_EQ(Read("/a/real/text"), "y");
}

TEST_F(FileCopiesTest, ALinkThatChangesLeadsElsewhereAtOnce) {
  tree_.AddDirectory("/a/other", {{"text", FileKind::kText}});
  tree_.Add("/a/other/text", FileKind::kText, "three\n");
  copies_.Update("/a/link/text");
  copies_.Update("/a/link/text");
  tree_.Add("/a/link", FileKind::kLink, "other");
  EXPECT_EQ(copies_.Update("/a/link/text").error, 0);
  EXPECT_EQ(Read("/a/link/text"), "three\n");
  tree_.AddDirectory("/a/link", {{"text", FileKind::kText}});
  tree_.Add("/a/link/text", FileKind::kText, "four\n");
  EXPECT_EQ(copies_.Update("/a/link/text").error, 0);
  EXPECT_EQ(Read("/a/link/text"), "four\n");
}

TEST_F(FileCopiesTest, ADirectoryThatComesBackIsReachedThroughItsLink) {
  copies_.Update("/a/link/text");
  const auto before = tree_.files;
  for (const char* const path : {"/a", "/a/link", "/a/real", "/a/real/text"})
    tree_.files.erase(path);
  EXPECT_EQ(copies_.Update("/a/link/text").error, ENOENT);
  tree_.files = before;
  EXPECT_EQ(copies_.Update("/a/link/text").error, 0);
  EXPECT_EQ(Read("/a/link/text"), "one\n");
}

TEST_F(FileCopiesTest, ErrorsAreThoseOfTheKernel) {
  tree_.Add("/a/loop", FileKind::kLink, "loop");
  tree_.Add("/a/wide", FileKind::kLink, "loop/loop");
  EXPECT_EQ(copies_.Update("/a/loop").error, ELOOP);
  EXPECT_EQ(copies_.Update("/a/wide").error, ELOOP);
  EXPECT_EQ(copies_.Update("/a/real/text/x").error, ENOTDIR);
  EXPECT_EQ(copies_.Update("/a/none").error, ENOENT);
  EXPECT_EQ(copies_.Update("/a/" + std::string(256, 'x')).error, ENAMETOOLONG);
  EXPECT_EQ(copies_.Update("/" + std::string(5000, '/')).error, ENAMETOOLONG);
  EXPECT_EQ(copies_.Update("a").error, EINVAL);
  EXPECT_EQ(copies_.Update("").error, EINVAL);
  EXPECT_EQ(copies_.Update(std::string_view("/a\0b", 4)).error, EINVAL);
}

TEST_F(FileCopiesTest, NoNameLeadsOutOfTheDirectory) {
  for (const std::string name : {"..", ".", "", "x/../../../y", "/etc"}) {
    tree_.AddDirectory("/a/real", {{name, FileKind::kDirectory}});
    EXPECT_EQ(copies_.Update("/a/real").error, EIO) << name;
  }
  EXPECT_EQ(copies_.Update("/../../../a/link").error, EIO) << "the kernel's root has no parent";
  EXPECT_EQ(Names(""), "a ");
}

TEST_F(FileCopiesTest, ADeviceIsAnEmptyFileWithItsNumber) {
  tree_.files["/a/node"] = {FileKind::kCharacterDevice, 0666, 231, 192, 0, "", {}, 0, false};
  const FilesReply reply = copies_.Update("/a/node");
  EXPECT_EQ(reply.is_device, 1u);
  EXPECT_EQ(reply.major, 231u);
  EXPECT_EQ(reply.minor, 192u);
  EXPECT_EQ(reply.mode, 0666u);
  EXPECT_EQ(access((directory_ + "/tree/a/node").c_str(), R_OK | W_OK), 0);
}

}  // namespace
}  // namespace rdmaemu::cli
