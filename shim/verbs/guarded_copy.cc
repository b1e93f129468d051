#include "shim/verbs/guarded_copy.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/rseq.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

namespace rdmaemu::shim {

#ifdef __x86_64__

namespace {

// The signature in front of an abort handler that glibc gives to the kernel (<bits/rseq.h>).
#define RDMAEMU_RSEQ_SIGNATURE 0x53053053

// Where glibc keeps a thread's struct rseq, from the thread pointer, in bytes. 0: unknown yet.
// kNowhere: there is none. The names are looked up, because older versions do not have them.
constexpr ptrdiff_t kNowhere = PTRDIFF_MAX;
std::atomic<ptrdiff_t> offset_from_thread{0};

ptrdiff_t Offset() {
  ptrdiff_t offset = offset_from_thread.load(std::memory_order_relaxed);
  if (offset != 0) return offset;
  const auto* size = static_cast<const unsigned*>(dlsym(RTLD_DEFAULT, "__rseq_size"));
  const auto* found = static_cast<const ptrdiff_t*>(dlsym(RTLD_DEFAULT, "__rseq_offset"));
  offset = size != nullptr && found != nullptr && *size != 0 ? *found : kNowhere;
  offset_from_thread.store(offset, std::memory_order_relaxed);
  return offset;
}

rseq* OwnRseq() {
  return reinterpret_cast<rseq*>(static_cast<char*>(__builtin_thread_pointer()) + Offset());
}

}  // namespace

bool CanCopyGuarded() {
  if (Offset() == kNowhere) return false;
  // The kernel writes the processor's number while the thread is registered. The values for "not
  // registered" are negative.
  const std::atomic_ref processor(OwnRseq()->cpu_id);
  return static_cast<int32_t>(processor.load(std::memory_order_relaxed)) >= 0;
}

ssize_t CopyGuarded(const CopyGuard& guard, pid_t pid, bool pull, std::span<const iovec> own,
                    std::span<const iovec> other) {
  // Labels: 1 begins the restartable sequence, 2 is behind it, 3 describes it to the kernel, 4 is
  // the abort handler, which begins anew at 5. The system call is the last instruction of the
  // sequence: a thread that is in the kernel has left the sequence.
  const long number = pull ? SYS_process_vm_readv : SYS_process_vm_writev;
  const long process = pid;
  const uint32_t* const word = guard.word;
  const uint32_t expected = guard.expected;
  const iovec *const own_vectors = own.data(), *const other_vectors = other.data();
  const size_t own_count = own.size(), other_count = other.size();
  rseq* const own_rseq = OwnRseq();
  long result;
  // No call may follow, which could change these registers.
  register const iovec* r10 asm("r10") = other_vectors;
  register size_t r8 asm("r8") = other_count;
  register unsigned long r9 asm("r9") = 0;  // flags
  asm volatile(
      ".pushsection __rseq_cs, \"aw\"\n\t"
      ".balign 32\n\t"
      "3:\n\t"
      ".long 0, 0\n\t"
      ".quad 1f, (2f - 1f), 4f\n\t"
      ".popsection\n\t"
      "5:\n\t"
      "leaq 3b(%%rip), %%rax\n\t"
      "movq %%rax, %[sequence]\n\t"
      "1:\n\t"
      "movq $%c[canceled], %%rax\n\t"
      "cmpl %[expected], (%[word])\n\t"
      "jne 2f\n\t"
      "movq %[number], %%rax\n\t"
      "syscall\n\t"
      "2:\n\t"
      "movq $0, %[sequence]\n\t"
      ".pushsection __rseq_failure, \"ax\"\n\t"
      ".byte 0x0f, 0xb9, 0x3d\n\t"  // an invalid instruction, with the signature as its operand
      ".long %c[signature]\n\t"
      "4:\n\t"
      "jmp 5b\n\t"
      ".popsection"
      : "=&a"(result), [sequence] "=m"(own_rseq->rseq_cs)
      : [canceled] "i"(-ECANCELED), [signature] "i"(RDMAEMU_RSEQ_SIGNATURE),
        [expected] "r"(expected), [word] "r"(word), [number] "r"(number), "D"(process),
        "S"(own_vectors), "d"(own_count), "r"(r10), "r"(r8), "r"(r9)
      : "rcx", "r11", "memory", "cc");
  if (result >= 0) return result;
  errno = static_cast<int>(-result);
  return -1;
}

#else

bool CanCopyGuarded() { return false; }

ssize_t CopyGuarded(const CopyGuard&, pid_t, bool, std::span<const iovec>, std::span<const iovec>) {
  errno = ENOSYS;
  return -1;
}

#endif

uint32_t CopyingThread() { return static_cast<uint32_t>(gettid()); }

}  // namespace rdmaemu::shim
