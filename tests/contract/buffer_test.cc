// The additions of rdma-core 57 to 65: ibv_alloc_buf(3), ibv_reg_mr_ex(3), and the functions that
// this device does not support.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/contract/support/command.h"
#include "tests/contract/support/environment.h"
#include "tests/contract/support/loopback.h"
#include "tests/contract/support/newer_verbs.h"

namespace rdma_contract {
namespace {

class BufferTest : public LoopbackTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(LoopbackTest::SetUp());
    if (!verbs.Find()) GTEST_SKIP() << "libibverbs is older than rdma-core 65";
  }
  char* Alloc(size_t bytes, newer::Buffer** buffer) {
    return static_cast<char*>(verbs.alloc_buf(pd.get(), bytes, buffer));
  }
  // Expects that a registration fails, and that a correct one works afterwards.
  void ExpectRefused(newer::MrInitAttr attr, int error) {
    errno = 0;
    EXPECT_EQ(verbs.reg_mr_ex(pd.get(), &attr), nullptr);
    EXPECT_EQ(errno, error);
    char byte = 0;
    newer::MrInitAttr correct{.length = 1, .comp_mask = newer::kAddr, .addr = &byte};
    EXPECT_TRUE(Mr(verbs.reg_mr_ex(pd.get(), &correct)));
  }
  newer::Library verbs;
};

// An end of a transfer.
struct End {
  char* bytes;
  const ibv_mr* mr;
  uint64_t address() const { return reinterpret_cast<uintptr_t>(bytes); }
};

constexpr size_t kTransferSizes[] = {1, 255, 256, 257, 4095, 4096, 4097, 1 << 20};

void Fill(char* bytes, size_t size, int seed) {
  for (size_t i = 0; i < size; i++) {
    bytes[i] = static_cast<char>(i * 7 + i / 251 + static_cast<size_t>(seed));
  }
}
bool Has(const char* bytes, size_t size, int seed) {
  for (size_t i = 0; i < size; i++) {
    if (bytes[i] != static_cast<char>(i * 7 + i / 251 + static_cast<size_t>(seed))) return false;
  }
  return true;
}

class BufferTransferTest : public BufferTest {
 protected:
  char* Plain() { return reinterpret_cast<char*>(data.data); }
  // Executes one request of queue pair a, of which `here` is the local end.
  ibv_wc_status Do(ibv_wr_opcode opcode, const End& here, const End& there, size_t size) {
    ibv_sge piece{here.address(), static_cast<uint32_t>(size), here.mr->lkey};
    ibv_send_wr wr{};
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      wr.wr.atomic.remote_addr = there.address();
      wr.wr.atomic.rkey = there.mr->rkey;
      wr.wr.atomic.compare_add = 5;
    } else {
      wr.wr.rdma = {there.address(), there.mr->rkey};
    }
    if (opcode == IBV_WR_SEND) {
      ibv_sge into{there.address(), static_cast<uint32_t>(size), there.mr->lkey};
      ibv_recv_wr receive{1, nullptr, &into, 1};
      ibv_recv_wr* bad = nullptr;
      EXPECT_EQ(ibv_post_recv(b.get(), &receive, &bad), 0);
    }
    ibv_send_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_send(a.get(), &wr, &bad), 0);
    const Completion done = PollOne(send_cq.get());
    EXPECT_TRUE(done.found);
    if (opcode == IBV_WR_SEND && done.wc.status == IBV_WC_SUCCESS) {
      EXPECT_EQ(PollOne(receive_cq.get()).wc.status, IBV_WC_SUCCESS);
    }
    return done.wc.status;
  }
  // Moves bytes by each operation between two ends, in both directions.
  void MoveByAll(const End& one, const End& other, size_t size) {
    int seed = 1;
    for (const ibv_wr_opcode opcode : {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
      for (const bool forth : {true, false}) {
        SCOPED_TRACE(testing::Message() << opcode << (forth ? " forth" : " back"));
        const End &here = forth ? one : other, &there = forth ? other : one;
        const bool reads = opcode == IBV_WR_RDMA_READ;
        Fill(reads ? there.bytes : here.bytes, size, ++seed);
        ASSERT_EQ(Do(opcode, here, there, size), IBV_WC_SUCCESS);
        EXPECT_TRUE(Has(reads ? here.bytes : there.bytes, size, seed));
      }
    }
  }
};

TEST_F(BufferTransferTest, MovesEveryByteBetweenBuffersAndOrdinaryMemory) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  for (const size_t size : kTransferSizes) {
    for (const size_t offset : {0, 1, 4095}) {
      SCOPED_TRACE(testing::Message() << size << " at " << offset);
      const size_t all = size + offset;
      newer::Buffer *first = nullptr, *second = nullptr;
      char* const one = Alloc(all, &first);
      char* const other = Alloc(all, &second);
      ASSERT_TRUE(one && other && first && second);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(one) % 4096, 0u);
      EXPECT_EQ(std::count(one, one + all, 0), static_cast<ptrdiff_t>(all)) << "zeroed";
      std::vector<char> plain(all);
      {
        const Mr one_mr(verbs.reg_buf_mr(pd.get(), first, one, all, kAllAccess));
        const Mr other_mr(verbs.reg_buf_mr(pd.get(), second, other, all, kAllAccess));
        const Mr plain_mr(ibv_reg_mr(pd.get(), plain.data(), all, kAllAccess));
        ASSERT_TRUE(one_mr && other_mr && plain_mr);
        EXPECT_EQ(one_mr->addr, one);
        EXPECT_EQ(one_mr->length, all);
        const End near{one + offset, one_mr.get()}, far{other + offset, other_mr.get()};
        const End ordinary{plain.data() + offset, plain_mr.get()};
        ASSERT_NO_FATAL_FAILURE(MoveByAll(near, far, size));
        ASSERT_NO_FATAL_FAILURE(MoveByAll(near, ordinary, size));
      }
      verbs.free_buf(first);
      verbs.free_buf(second);
    }
  }
}

TEST_F(BufferTransferTest, AtomicsActOnABufferAndReturnIntoOne) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  newer::Buffer* buffer = nullptr;
  char* const memory = Alloc(8192, &buffer);
  ASSERT_NE(memory, nullptr);
  {
    const Mr region(verbs.reg_buf_mr(pd.get(), buffer, memory, 8192, kAllAccess));
    ASSERT_TRUE(region);
    uint64_t number = 7;
    memcpy(memory + 4096, &number, sizeof number);
    for (const uint64_t before : {7, 12}) {
      ASSERT_EQ(
          Do(IBV_WR_ATOMIC_FETCH_AND_ADD, {memory, region.get()}, {memory + 4096, region.get()}, 8),
          IBV_WC_SUCCESS);
      memcpy(&number, memory, sizeof number);
      EXPECT_EQ(number, before);
    }
    memcpy(&number, memory + 4096, sizeof number);
    EXPECT_EQ(number, 17u);
  }
  verbs.free_buf(buffer);
}

TEST_F(BufferTransferTest, SeveralRegionsLieOverOneBuffer) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  newer::Buffer* buffer = nullptr;
  char* const memory = Alloc(3 * 4096, &buffer);
  ASSERT_NE(memory, nullptr);
  Mr low(verbs.reg_buf_mr(pd.get(), buffer, memory, 2 * 4096, kAllAccess));
  const Mr high(verbs.reg_buf_mr(pd.get(), buffer, memory + 4096, 2 * 4096, kAllAccess));
  ASSERT_TRUE(low && high);
  Fill(Plain(), 4096, 3);
  const End source{Plain(), mr.get()};
  ASSERT_EQ(Do(IBV_WR_RDMA_WRITE, source, {memory, low.get()}, 4096), IBV_WC_SUCCESS);
  ASSERT_EQ(Do(IBV_WR_RDMA_WRITE, source, {memory + 4096, low.get()}, 4096), IBV_WC_SUCCESS);
  low.reset();
  Fill(Plain(), 4096, 4);
  ASSERT_EQ(Do(IBV_WR_RDMA_WRITE, source, {memory + 4096, high.get()}, 4096), IBV_WC_SUCCESS);
  EXPECT_TRUE(Has(memory, 4096, 3));
  EXPECT_TRUE(Has(memory + 4096, 4096, 4));
  EXPECT_EQ(memory[8192], 0);
  EXPECT_NE(Do(IBV_WR_RDMA_WRITE, source, {memory + 8192 + 1, high.get()}, 4096), IBV_WC_SUCCESS);
}

// rdma-core leaves the region to the program. The memory is gone, as after munmap(2).
TEST_F(BufferTransferTest, AFreedBufferIsOutOfItsRegionsReach) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  newer::Buffer *buffer = nullptr, *next = nullptr;
  char* const memory = Alloc(8192, &buffer);
  ASSERT_NE(memory, nullptr);
  const Mr region(verbs.reg_buf_mr(pd.get(), buffer, memory, 8192, kAllAccess));
  ASSERT_TRUE(region);
  const End source{Plain(), mr.get()};
  ASSERT_EQ(Do(IBV_WR_RDMA_WRITE, source, {memory, region.get()}, 4096), IBV_WC_SUCCESS);
  verbs.free_buf(buffer);
  EXPECT_NE(Do(IBV_WR_RDMA_WRITE, source, {memory, region.get()}, 4096), IBV_WC_SUCCESS);
  const char* const again = Alloc(8192, &next);
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(std::count(again, again + 8192, 0), 8192);
  verbs.free_buf(next);
}

// Returns whether another process can share the page ("rw-s" in maps of proc(5)).
bool IsSharedMapping(const void* address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    char rights[5] = "";
    uintptr_t begin = 0, end = 0;
    if (sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, rights) != 3) continue;
    const auto at = reinterpret_cast<uintptr_t>(address);
    if (begin <= at && at < end) return rights[3] == 's';
  }
  return false;
}

// The limit is 256 MiB for all buffers of a process.
TEST_F(BufferTransferTest, ABufferBehindTheLimitIsOrdinaryMemory) {
  const std::string shares = Variable("RDMA_TEST_SHARES_BUFFERS");
  if (shares.empty()) GTEST_SKIP() << "no emulator whose options are known";
  ASSERT_NO_FATAL_FAILURE(Connect());
  newer::Buffer *small = nullptr, *large = nullptr;
  const size_t size = size_t{300} << 20;
  const char* const low = Alloc(4096, &small);
  char* const high = Alloc(size, &large);
  ASSERT_TRUE(low && high);
  EXPECT_EQ(IsSharedMapping(low), shares == "yes");
  EXPECT_FALSE(IsSharedMapping(high));
  EXPECT_EQ(HostsJson().find("\"ordinary\":0") == std::string::npos &&
                HostsJson().find("\"ordinary\": 0") == std::string::npos,
            shares == "yes");
  {
    const Mr region(verbs.reg_buf_mr(pd.get(), large, high + size - 4096, 4096, kAllAccess));
    ASSERT_TRUE(region);
    Fill(Plain(), 4096, 5);
    ASSERT_EQ(Do(IBV_WR_RDMA_WRITE, {Plain(), mr.get()}, {high + size - 4096, region.get()}, 4096),
              IBV_WC_SUCCESS);
    EXPECT_TRUE(Has(high + size - 4096, 4096, 5));
  }
  verbs.free_buf(large);
  verbs.free_buf(small);
}

class BufferForkTest : public BufferTransferTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(BufferTransferTest::SetUp());
    ASSERT_EQ(pipe2(to_child, O_CLOEXEC), 0);
    ASSERT_EQ(pipe2(from_child, O_CLOEXEC), 0);
  }
  void TearDown() override {
    for (const int fd : {to_child[0], to_child[1], from_child[0], from_child[1]}) close(fd);
  }
  void Start(const std::function<int()>& body) {
    child = fork();
    ASSERT_GE(child, 0);
    if (child != 0) return;
    alarm(60);  // a hang is a failure, not a time-out of the whole run
    _exit(body());
  }
  void Await() {
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  static bool Wake(int fd) { return write(fd, "x", 1) == 1; }
  static bool Sleep(int fd) {
    char byte;
    return read(fd, &byte, 1) == 1;
  }

  int to_child[2] = {-1, -1}, from_child[2] = {-1, -1};
  pid_t child = -1;
};

// A buffer has three parts: the parent writes the first after the fork, the host the second.
TEST_F(BufferForkTest, ParentAndChildHaveTheirOwnBytesAndTheHostWritesTheParents) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  for (const size_t part : {4096, 65536}) {
    SCOPED_TRACE(part);
    newer::Buffer* buffer = nullptr;
    char* const memory = Alloc(3 * part, &buffer);
    ASSERT_NE(memory, nullptr);
    Mr region(verbs.reg_buf_mr(pd.get(), buffer, memory, 3 * part, kAllAccess));
    newer::Buffer* own = nullptr;
    char* const source = Alloc(part, &own);
    Mr source_mr(verbs.reg_buf_mr(pd.get(), own, source, part, kAllAccess));
    ASSERT_TRUE(region && source && source_mr);
    Fill(memory, 3 * part, 1);
    Fill(source, part, 2);
    ASSERT_NO_FATAL_FAILURE(Start([&] {
      if (!Sleep(to_child[0]) || !Has(memory, 3 * part, 1)) return 1;
      Fill(memory, 3 * part, 7);
      if (!Wake(from_child[1]) || !Sleep(to_child[0])) return 2;
      if (!Has(memory, 3 * part, 7)) return 3;
      verbs.free_buf(buffer);
      return 0;
    }));
    const End from{source, source_mr.get()}, to{memory + part, region.get()};
    Fill(memory, part, 3);
    ASSERT_EQ(Do(IBV_WR_RDMA_WRITE, from, to, part), IBV_WC_SUCCESS);
    ASSERT_TRUE(Wake(to_child[1]) && Sleep(from_child[0]));
    EXPECT_TRUE(Has(memory, part, 3));
    EXPECT_TRUE(Has(memory + part, part, 2));
    EXPECT_EQ(memory[2 * part], static_cast<char>(2 * part * 7 + 2 * part / 251 + 1));
    Fill(source, part, 4);
    ASSERT_EQ(Do(IBV_WR_SEND, from, to, part), IBV_WC_SUCCESS);
    EXPECT_TRUE(Has(memory + part, part, 4));
    ASSERT_TRUE(Wake(to_child[1]));
    ASSERT_NO_FATAL_FAILURE(Await());
    ASSERT_NO_FATAL_FAILURE(MoveByAll({memory, region.get()}, from, part));
    region.reset();
    source_mr.reset();
    verbs.free_buf(buffer);
    verbs.free_buf(own);
  }
}

// The parent's buffers of after the fork, the child's, and a transfer between the two processes.
// A soft limit that was lowered since must not make parent and child share pages.
TEST_F(BufferForkTest, ALoweredLimitOfDataSharesNothing) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  constexpr size_t kSize = 1 << 20;
  newer::Buffer* buffer = nullptr;
  char* const memory = Alloc(kSize, &buffer);
  ASSERT_NE(memory, nullptr);
  Fill(memory, kSize, 1);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_DATA, &before), 0);
  const rlimit low{4096, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &low), 0);
  ASSERT_NO_FATAL_FAILURE(Start([&] {
    if (!Has(memory, kSize, 1)) return 1;
    Fill(memory, kSize, 7);
    return Has(memory, kSize, 7) ? 0 : 2;
  }));
  rlimit since{};
  ASSERT_EQ(getrlimit(RLIMIT_DATA, &since), 0);
  EXPECT_EQ(since.rlim_cur, low.rlim_cur);
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &before), 0);
  ASSERT_NO_FATAL_FAILURE(Await());
  EXPECT_TRUE(Has(memory, kSize, 1));
  verbs.free_buf(buffer);
}

TEST_F(BufferForkTest, BuffersOfAfterTheForkMoveBytesBetweenTheProcesses) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  newer::Buffer* before = nullptr;
  ASSERT_NE(Alloc(4096, &before), nullptr);
  struct Target {
    uint64_t address;
    uint32_t rkey;
  } target{};
  ASSERT_NO_FATAL_FAILURE(Start([&] {
    if (read(to_child[0], &target, sizeof target) != sizeof target) return 1;
    newer::Buffer* own = nullptr;
    char* const memory = Alloc(65536, &own);
    const Mr region(memory == nullptr ? nullptr
                                      : verbs.reg_buf_mr(pd.get(), own, memory, 65536, kAllAccess));
    if (!region) return 2;
    Fill(memory, 65536, 6);
    ibv_mr there{};
    there.rkey = target.rkey;
    const End to{reinterpret_cast<char*>(target.address), &there};
    return Do(IBV_WR_RDMA_WRITE, {memory, region.get()}, to, 65536) == IBV_WC_SUCCESS ? 0 : 3;
  }));
  newer::Buffer* after = nullptr;
  char* const memory = Alloc(65536, &after);
  ASSERT_NE(memory, nullptr);
  {
    const Mr region(verbs.reg_buf_mr(pd.get(), after, memory, 65536, kAllAccess));
    ASSERT_TRUE(region);
    target = {reinterpret_cast<uintptr_t>(memory), region->rkey};
    ASSERT_EQ(write(to_child[1], &target, sizeof target), static_cast<ssize_t>(sizeof target));
    ASSERT_NO_FATAL_FAILURE(Await());
    EXPECT_TRUE(Has(memory, 65536, 6));
  }
  verbs.free_buf(after);
  verbs.free_buf(before);
}

// The host, a thread and the fork change one buffer at a time.
TEST_F(BufferForkTest, AForkLosesNoWriteOfTheHostOrOfAThread) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  constexpr size_t kHalf = 3 * 4096 + 2048;  // the halves share a page
  for (int round = 0; round < 20; round++) {
    newer::Buffer* buffer = nullptr;
    char* const memory = Alloc(2 * kHalf, &buffer);
    newer::Buffer* own = nullptr;
    char* const source = Alloc(kHalf, &own);
    ASSERT_TRUE(memory && source);
    Mr region(verbs.reg_buf_mr(pd.get(), buffer, memory, 2 * kHalf, kAllAccess));
    Mr source_mr(verbs.reg_buf_mr(pd.get(), own, source, kHalf, kAllAccess));
    ASSERT_TRUE(region && source_mr);
    std::atomic<int> steps{0};
    std::atomic<bool> lost{false}, stop{false};
    std::thread writer([&] {
      for (int seed = 1; !stop; seed++, steps++) {
        Fill(memory + kHalf, kHalf, seed);
        if (!Has(memory + kHalf, kHalf, seed)) lost = true;
      }
    });
    for (int seed = 1; seed < 9 && !lost; seed++) {
      Fill(source, kHalf, seed);
      std::thread forker([&] {
        if (seed != 4) return;
        const pid_t pid = fork();
        if (pid == 0) _exit(0);
        waitpid(pid, nullptr, 0);
      });
      EXPECT_EQ(Do(IBV_WR_RDMA_WRITE, {source, source_mr.get()}, {memory, region.get()}, kHalf),
                IBV_WC_SUCCESS);
      forker.join();
      if (!Has(memory, kHalf, seed)) lost = true;
    }
    stop = true;
    writer.join();
    EXPECT_FALSE(lost) << "in round " << round << " after " << steps << " steps";
    region.reset();
    source_mr.reset();
    verbs.free_buf(buffer);
    verbs.free_buf(own);
    if (lost) return;
  }
}

TEST_F(BufferTest, ARegionLiesWithinItsBuffer) {
  newer::Buffer* buffer = nullptr;
  char* const memory = Alloc(5000, &buffer);
  ASSERT_NE(memory, nullptr);
  const auto reg = [&](char* begin, size_t length) {
    errno = 0;
    return Mr(verbs.reg_buf_mr(pd.get(), buffer, begin, length, 0)) ? 0 : errno;
  };
  EXPECT_EQ(reg(memory, 5000), 0);
  EXPECT_EQ(reg(memory + 4999, 1), 0);
  EXPECT_EQ(reg(memory, 5001), EINVAL);
  EXPECT_EQ(reg(memory + 4999, 2), EINVAL);
  EXPECT_EQ(reg(memory - 1, 1), EINVAL);
  EXPECT_EQ(reg(memory + 1, SIZE_MAX), EINVAL);
  EXPECT_EQ(reg(memory, 5000), 0);
  verbs.free_buf(buffer);
}

TEST_F(BufferTest, ABufferBelongsToItsProtectionDomain) {
  const Pd other(ibv_alloc_pd(context.get()));
  newer::Buffer* buffer = nullptr;
  char* const memory = Alloc(1, &buffer);
  ASSERT_TRUE(other && memory);
  errno = 0;
  EXPECT_EQ(verbs.reg_buf_mr(other.get(), buffer, memory, 1, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_TRUE(Mr(verbs.reg_buf_mr(pd.get(), buffer, memory, 1, 0)));
  verbs.free_buf(buffer);
}

TEST_F(BufferTest, ABufferIsNoDmaBuf) {
  newer::Buffer* buffer = nullptr;
  ASSERT_NE(Alloc(1, &buffer), nullptr);
  errno = 0;
  EXPECT_EQ(verbs.export_fd(buffer), -1);
  EXPECT_EQ(errno, ENODATA);
  verbs.free_buf(buffer);
}

TEST_F(BufferTest, ASizeThatCannotBeFails) {
  newer::Buffer* buffer = nullptr;
  errno = 0;
  EXPECT_EQ(Alloc(SIZE_MAX, &buffer), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(Alloc(SIZE_MAX / 4, &buffer), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(buffer, nullptr);
  EXPECT_NE(Alloc(1, &buffer), nullptr);
  verbs.free_buf(buffer);
}

TEST_F(BufferTest, RegistrationByAttributesWantsFieldsThatAgree) {
  newer::Buffer* buffer = nullptr;
  char* const memory = Alloc(64, &buffer);
  ASSERT_NE(memory, nullptr);
  const newer::MrInitAttr good{
      .length = 64, .comp_mask = newer::kBuf | newer::kAddr, .addr = memory, .buf = buffer};
  newer::MrInitAttr attr = good;
  EXPECT_TRUE(Mr(verbs.reg_mr_ex(pd.get(), &attr)));
  attr.comp_mask = newer::kBuf;  // no address
  ExpectRefused(attr, EINVAL);
  attr.comp_mask = newer::kBuf | newer::kAddr | newer::kFd;
  ExpectRefused(attr, EINVAL);
  attr.comp_mask = newer::kBuf | newer::kAddr | newer::kFdOffset;
  ExpectRefused(attr, EINVAL);
  attr.comp_mask = 0;  // neither address nor descriptor
  ExpectRefused(attr, EINVAL);
  attr.comp_mask = newer::kFd | newer::kAddr;
  ExpectRefused(attr, EINVAL);
  attr.comp_mask = newer::kFd;
  ExpectRefused(attr, EOPNOTSUPP);
  attr.comp_mask = newer::kAddr | newer::kDmah;
  ExpectRefused(attr, EOPNOTSUPP);
  attr.comp_mask = newer::kAddr | uint64_t{1} << 40;
  ExpectRefused(attr, EOPNOTSUPP);
  verbs.free_buf(buffer);
}

// The peer reaches the region at the address that the program chose.
TEST_F(BufferTest, RegistrationByAttributesTakesAnIova) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  char target[16] = {};
  const uint64_t iova = 0x10000 + reinterpret_cast<uintptr_t>(target) % 4096;  // as rxe demands
  newer::MrInitAttr attr{.length = sizeof target,
                         .access = kAllAccess,
                         .comp_mask = newer::kAddr | newer::kIova,
                         .iova = iova,
                         .addr = target};
  const Mr region(verbs.reg_mr_ex(pd.get(), &attr));
  ASSERT_TRUE(region);
  memset(data.data, 0x5a, sizeof target);
  ibv_sge piece = Piece();
  ibv_send_wr wr{};
  wr.sg_list = &piece;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma = {iova, region->rkey};
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(a.get(), &wr, &bad), 0);
  const Completion done = PollOne(send_cq.get());
  ASSERT_TRUE(done.found);
  ASSERT_EQ(done.wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(memcmp(target, data.data, sizeof target), 0);
}

TEST_F(BufferTest, WhatTheDeviceLacksAnswersEopnotsupp) {
  uint64_t room[16] = {};
  errno = 0;
  EXPECT_EQ(verbs.alloc_dmah(context.get(), room), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  errno = 0;
  EXPECT_EQ(verbs.create_counter(context.get(), room), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(verbs.counter_caps(context.get(), room, 16), EOPNOTSUPP);
  EXPECT_EQ(verbs.port_speed(context.get(), 1, room), EOPNOTSUPP);
}

// A program of rdma-core 65 asks for six operations before those that this header knows. The
// context says that it does not have them (verbs_get_ctx_op compares the distance from the end).
TEST_F(BufferTest, ContextsExcludeTheOperationsOfNewerHeaders) {
  const verbs_context* const extended = verbs_get_ctx(context.get());
  ASSERT_NE(extended, nullptr);
  EXPECT_LE(extended->sz, sizeof(verbs_context));
}

}  // namespace
}  // namespace rdma_contract
