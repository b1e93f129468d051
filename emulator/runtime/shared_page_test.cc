// Several processes that change one page, some of which stop within a change. Each holder here has
// its own open file description, as each process has.
#include "emulator/runtime/shared_page.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "emulator/runtime/unique_fd.h"

namespace rdmaemu::runtime {
namespace {

constexpr size_t kWriters = 4;

struct Numbers {
  std::array<uint64_t, kWriters> of;  // each writer changes its own
};
using Page = SharedPage<Numbers>;

class SharedPageTest : public ::testing::Test {
 protected:
  SharedPageTest() {
    char name[] = "/tmp/rdmaemu-page-XXXXXX";
    const UniqueFd created(mkstemp(name));
    path_ = name;
    for (UniqueFd& fd : fds_) fd = Open();
  }
  ~SharedPageTest() override { unlink(path_.c_str()); }

  UniqueFd Open() const { return UniqueFd(open(path_.c_str(), O_RDWR | O_CLOEXEC)); }
  int fd(size_t writer) const { return fds_[writer].get(); }
  // Adds one to the writer's number. The first attempt stops before its write, and runs
  // `meanwhile`.
  bool Add(size_t writer, const std::function<void()>& meanwhile = nullptr) const {
    bool is_first = true;
    return Page::Update(fd(writer), [&](Numbers& numbers, bool is_there) {
      if (!is_there) numbers = {};
      numbers.of[writer]++;
      if (is_first && meanwhile) {
        is_first = false;
        meanwhile();
      }
      return true;
    });
  }
  std::array<uint64_t, kWriters> Read() const {
    Numbers numbers{};
    EXPECT_TRUE(Page::Read(fd(0), numbers));
    return numbers.of;
  }

  std::string path_;
  std::array<UniqueFd, kWriters> fds_;
};

TEST_F(SharedPageTest, AnEmptyFileHoldsNoPage) {
  Numbers numbers;
  EXPECT_FALSE(Page::Read(fd(0), numbers));
}

TEST_F(SharedPageTest, EachWriterReadsTheLatestPage) {
  EXPECT_TRUE(Add(0));
  EXPECT_TRUE(Add(1));
  EXPECT_TRUE(Add(0));
  EXPECT_EQ(Read(), (std::array<uint64_t, kWriters>{2, 1, 0, 0}));
}

TEST_F(SharedPageTest, AChangeThatReturnsFalseStoresNothing) {
  EXPECT_TRUE(Add(0));
  EXPECT_FALSE(Page::Update(fd(1), [](Numbers& numbers, bool) {
    numbers.of[1] = 99;
    return false;
  }));
  EXPECT_TRUE(Add(2)) << "the turn is free again";
  EXPECT_EQ(Read(), (std::array<uint64_t, kWriters>{1, 0, 1, 0}));
}

TEST_F(SharedPageTest, AWriterThatStopsWithinItsChangeBlocksNobodyAndUndoesNothing) {
  EXPECT_TRUE(Add(0));
  EXPECT_TRUE(Add(1, [&] {
    EXPECT_TRUE(Add(2));
    EXPECT_TRUE(Add(3));
  }));
  EXPECT_EQ(Read(), (std::array<uint64_t, kWriters>{1, 1, 1, 1}));
}

TEST_F(SharedPageTest, AWriterThatTookOverMayStopAsWell) {
  EXPECT_TRUE(Add(0, [&] { EXPECT_TRUE(Add(1, [&] { EXPECT_TRUE(Add(2)); })); }));
  EXPECT_EQ(Read(), (std::array<uint64_t, kWriters>{1, 1, 1, 0}));
}

// The new turn has no stored page yet, so its Read returns the late write.
TEST_F(SharedPageTest, AWriteThatComesBeforeTheNewTurnsReadIsReadThereAndMadeAgain) {
  EXPECT_TRUE(Add(0));
  PageTurn stopped(fd(1)), next(fd(2));
  ASSERT_TRUE(stopped.Take());
  ASSERT_TRUE(next.Take());
  EXPECT_GT(next.number(), stopped.number());
  struct {
    uint64_t turn;
    Numbers numbers;
  } area{stopped.number(), {{7, 7, 7, 7}}};
  EXPECT_TRUE(stopped.Write(&area, sizeof area));
  EXPECT_FALSE(stopped.IsLatest()) << "so the writer makes its change again";
  area = {};
  EXPECT_TRUE(next.Read(&area, sizeof area));
  EXPECT_EQ(area.turn, stopped.number());
  EXPECT_EQ(area.numbers.of[0], 7u);
  area = {next.number(), {{8, 8, 8, 8}}};
  EXPECT_TRUE(next.Write(&area, sizeof area));
  EXPECT_TRUE(next.IsLatest());
  area = {stopped.number(), {{9, 9, 9, 9}}};
  EXPECT_TRUE(stopped.Write(&area, sizeof area));
  EXPECT_EQ(Read()[0], 8u) << "a late write changes nothing";
}

// The numbers of the areas come round, and those of stopped writers are passed over.
TEST_F(SharedPageTest, AllAreasButOneMayBelongToStoppedWriters) {
  EXPECT_TRUE(Add(0));
  std::vector<UniqueFd> files;
  std::vector<std::unique_ptr<PageTurn>> stopped;
  for (size_t i = 0; i + 1 < PageTurn::kAreas; i++) {
    files.push_back(Open());
    stopped.push_back(std::make_unique<PageTurn>(files.back().get()));
    ASSERT_TRUE(stopped.back()->Take()) << i;
  }
  EXPECT_TRUE(Add(0));
  stopped.front().reset();
  EXPECT_TRUE(Add(1, [&] { EXPECT_TRUE(Add(2)); })) << "in the area that is free again";
  EXPECT_EQ(Read(), (std::array<uint64_t, kWriters>{2, 1, 1, 0}));
}

TEST_F(SharedPageTest, AnythingMayBeInTheFile) {
  EXPECT_TRUE(Add(0));
  const std::string noise(PageTurn::kAreasAt + PageTurn::kMaxAreaBytes, '\xff');
  ASSERT_EQ(pwrite(fd(0), noise.data(), noise.size(), 0), static_cast<ssize_t>(noise.size()));
  Numbers numbers;
  EXPECT_FALSE(Page::Read(fd(0), numbers));
  EXPECT_TRUE(Add(1)) << "a new page";
  EXPECT_EQ(Read(), (std::array<uint64_t, kWriters>{0, 1, 0, 0}));
}

// SIGXFSZ would end this test.
TEST_F(SharedPageTest, AFileSizeLimitIsAnErrorAndNoSignal) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlim_t needed = PageTurn::kAreasAt + sizeof(uint64_t) + sizeof(Numbers);
  for (const rlim_t limit : {rlim_t{0}, needed - 1, needed}) {
    const rlimit small{limit, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    errno = 0;
    const bool added = Add(0);
    const int error = errno;
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_EQ(added, limit == needed) << limit;
    EXPECT_EQ(error, limit == needed ? 0 : EFBIG);
  }
}

TEST_F(SharedPageTest, AFileThatCannotBeReadIsNoTurn) {
  EXPECT_FALSE(PageTurn(-1).Take());
  EXPECT_FALSE(Page::Update(-1, [](Numbers&, bool) { return true; }));
}

// A process for which each number must be the one that it wrote last.
[[noreturn]] void CountTo(uint64_t last, const std::string& path, size_t writer) {
  const UniqueFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
  bool is_lost = false;
  for (uint64_t number = 1; number <= last; number++) {
    const bool is_stored = Page::Update(fd.get(), [&](Numbers& numbers, bool is_there) {
      if (!is_there) numbers = {};
      // A change that is made again may find itself.
      is_lost |= numbers.of[writer] != number - 1 && numbers.of[writer] != number;
      numbers.of[writer] = number;
      return true;
    });
    if (!is_stored || is_lost) _exit(1);
  }
  _exit(0);
}

TEST_F(SharedPageTest, NoChangeIsLostWhenSignalsStopItsWritersAnywhere) {
  constexpr uint64_t kLast = 3000;
  std::array<pid_t, kWriters> writers;
  for (size_t i = 0; i < kWriters; i++) {
    if ((writers[i] = fork()) == 0) CountTo(kLast, path_, i);
    ASSERT_GT(writers[i], 0);
  }
  size_t running = kWriters;
  while (running > 0) {
    for (pid_t& writer : writers) {
      if (writer == 0) continue;
      kill(writer, SIGSTOP);
      int status;
      ASSERT_EQ(waitpid(writer, &status, WUNTRACED), writer);
      if (WIFSTOPPED(status)) {
        // Another writer changes the page before this one continues.
        Page::Update(fd(0), [](Numbers&, bool is_there) { return is_there; });
        kill(writer, SIGCONT);
        continue;
      }
      EXPECT_EQ(status, 0) << "a change was lost";
      writer = 0;
      running--;
    }
  }
  for (const uint64_t number : Read()) EXPECT_EQ(number, kLast);
}

}  // namespace
}  // namespace rdmaemu::runtime
