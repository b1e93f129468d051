// A client of a host process that uses rdmaemu.h: rules and devices go to its host; a second host
// inside it is refused. Prints what is wrong; its end is 0 when nothing is.
#include <infiniband/verbs.h>
#include <rdmaemu/rdmaemu.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace {

int g_failures = 0;

void Expect(bool holds, const char* what) {
  if (holds) return;
  std::printf("not so: %s (%s)\n", what, rdmaemu_last_error());
  g_failures++;
}

}  // namespace

int main() {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  Expect(count == 1, "one device");
  if (count != 1) return 1;
  ibv_context* context = ibv_open_device(list[0]);
  ibv_free_device_list(list);

  Expect(rdmaemu_open(nullptr) == -EBUSY, "a client of a host process opens no host");
  Expect(rdmaemu_now() == -ENOENT, "the time of a host process is not told");
  char name[64];
  Expect(rdmaemu_rule_add("at = \"call.alloc_pd\", errno = \"ENOMEM\"", name, sizeof name) == 0,
         "a rule is added");
  Expect(ibv_alloc_pd(context) == nullptr && errno == ENOMEM, "the rule fires");
  rdmaemu_rule rule;
  Expect(rdmaemu_rules(&rule, 1) == 1 && rule.fired == 1, "the firing is counted");
  Expect(rdmaemu_rule_remove(name) == 0, "the rule is removed");
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
