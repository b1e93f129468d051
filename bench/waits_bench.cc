// The cost of librdmaemu.so.1's waits and clocks in a program without an embedded host, as a ratio
// to the C library's own function in the same run. Each round calls the C library's function and
// then ours. The printed ratio is the median of the rounds' ratios.
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr int kRounds = 31;
constexpr int kCallsPerRound = 20'000;

template <class Call>
double Nanoseconds(Call& call) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kCallsPerRound; i++) call();
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
  return took.count() / kCallsPerRound;
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + kRounds / 2, values.end());
  return values[kRounds / 2];
}

// `call` calls the function that it gets.
template <class Function, class Call>
void Measure(const char* name, Function* ours, Call call) {
  // RTLD_NEXT of this program would find librdmaemu.so.1's function.
  void* const libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  auto* const theirs = reinterpret_cast<Function*>(dlsym(libc, name));
  if (theirs == nullptr || theirs == ours) {
    std::fprintf(stderr, "%s of librdmaemu.so.1 is not in use\n", name);
    std::exit(1);
  }
  const auto call_ours = [&] { call(ours); };
  const auto call_theirs = [&] { call(theirs); };
  std::vector<double> ours_ns, theirs_ns, ratios;
  for (int i = 0; i < kRounds; i++) {
    theirs_ns.push_back(Nanoseconds(call_theirs));
    ours_ns.push_back(Nanoseconds(call_ours));
    ratios.push_back(ours_ns.back() / theirs_ns.back());
  }
  std::printf("| `%s` | %.1f ns | %.1f ns | %.2f |\n", name, Median(ours_ns), Median(theirs_ns),
              Median(ratios));
}

}  // namespace

int main() {
  std::printf("| function | ours | the C library's | ratio |\n|---|---|---|---|\n");
  Measure("poll", poll, [](auto* function) { function(nullptr, 0, 0); });
  const int loop = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event;
  Measure("epoll_wait", epoll_wait, [&](auto* function) { function(loop, &event, 1, 0); });
  const int empty = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  uint64_t count;
  Measure("read", read, [&](auto* function) { return function(empty, &count, sizeof count); });
  pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
  Measure("pthread_cond_signal", pthread_cond_signal,
          [&](auto* function) { function(&condition); });
  timespec now;
  Measure("clock_gettime", clock_gettime, [&](auto* function) { function(CLOCK_MONOTONIC, &now); });
}
