// A client of a host process that uses rdmaemu.h. Rules, devices and time are the host process's.
// The client cannot open a second host inside itself. It prints every error, and its exit status is
// 0 without errors.
#include <infiniband/verbs.h>
#include <rdmaemu/rdmaemu.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>

namespace {

int g_failures = 0;

void Expect(bool holds, const char* what) {
  if (holds) return;
  std::printf("not so: %s (%s)\n", what, rdmaemu_last_error());
  g_failures++;
}

// A rule holds one thread in a call, which keeps the program's connection busy. Another thread
// releases it.
void HoldACall(ibv_context* context) {
  Expect(rdmaemu_rule_add("name = \"gate\", at = \"call.alloc_pd\", hold = true", nullptr, 0) == 0,
         "a barrier is added");
  std::atomic<bool> returned{false};
  std::thread held([&] {
    ibv_pd* const pd = ibv_alloc_pd(context);
    returned = true;
    Expect(pd != nullptr, "the held call succeeds");
    ibv_dealloc_pd(pd);
  });
  Expect(rdmaemu_rule_wait("gate", 1, 10'000) == 0, "the call comes to the barrier");
  Expect(!returned, "and stays there");
  Expect(rdmaemu_rule_wait("gate", 2, 1) == -ETIMEDOUT, "no other one comes");
  Expect(rdmaemu_rule_release("gate") == 0, "it is let go");
  held.join();
  Expect(rdmaemu_rule_remove("gate") == 0, "the barrier is removed");
}

// Under the manual clock, an advance fires a rule whose time is due.
void MoveTime() {
  Expect(rdmaemu_now() == 0, "manual time begins at 0");
  Expect(rdmaemu_rule_add("name = \"later\", at = \"time\", at_ms = 50, port = \"down\"", nullptr,
                          0) == 0,
         "a rule of time is added");
  Expect(rdmaemu_advance(49'000'000) == 0 && rdmaemu_now() == 49'000'000, "time moves so far");
  rdmaemu_rule rule{};
  Expect(rdmaemu_rules(&rule, 1) == 1 && rule.fired == 0, "what is due later has not happened");
  Expect(rdmaemu_advance(0) == 0 && rdmaemu_now() == 49'000'000, "no time is no time");
  Expect(rdmaemu_run_until_idle() == 0 && rdmaemu_now() == 50'000'000, "and jumps to what is due");
  Expect(rdmaemu_rules(&rule, 1) == 1 && rule.fired == 1, "which happens");
  Expect(rdmaemu_advance(uint64_t{1} << 59) == -EINVAL, "18 years are too far");
  Expect(rdmaemu_rule_remove("later") == 0 && rdmaemu_port_set("rxe0", 1) == 0, "all as before");
}

}  // namespace

int main(int argc, char** argv) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  Expect(count == 1, "one device");
  if (count != 1) return 1;
  ibv_context* context = ibv_open_device(list[0]);
  ibv_free_device_list(list);

  Expect(rdmaemu_open(nullptr) == -EBUSY, "a client of a host process opens no host");
  if (argc > 1 && std::strcmp(argv[1], "manual") == 0) {
    MoveTime();
  } else {
    Expect(rdmaemu_now() > 0, "the time of a host process is told");
    Expect(rdmaemu_advance(1) == -EOPNOTSUPP, "a real clock is not moved");
    Expect(std::strstr(rdmaemu_last_error(), "--clock manual") != nullptr,
           "it says which clock is");
    Expect(rdmaemu_run_until_idle() == -EOPNOTSUPP, "nor does it jump");
  }
  char name[64];
  Expect(rdmaemu_rule_add("at = \"call.alloc_pd\", errno = \"ENOMEM\"", name, sizeof name) == 0,
         "a rule is added");
  Expect(ibv_alloc_pd(context) == nullptr && errno == ENOMEM, "the rule fires");
  rdmaemu_rule rule;
  Expect(rdmaemu_rules(&rule, 1) == 1 && rule.fired == 1, "the firing is counted");
  Expect(rdmaemu_rule_remove(name) == 0, "the rule is removed");
  HoldACall(context);
  ibv_pd* pd = ibv_alloc_pd(context);
  Expect(pd != nullptr, "without the rule the call works");
  ibv_dealloc_pd(pd);
  ibv_close_device(context);
  Expect(rdmaemu_device_remove("rxe0") == 0, "the device is removed");
  list = ibv_get_device_list(&count);
  ibv_free_device_list(list);
  Expect(count == 0, "no device is left");
  Expect(rdmaemu_device_add("rxe0", nullptr) == 0, "the device returns");
  return g_failures == 0 ? 0 : 1;
}
