// Makes calls one after the other. Prints each call when it begins, and its errno when it returns.
// For rules that delay calls. Uses public headers only.
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdio>

namespace {

void Say(const char* what) {
  printf("%s\n", what);
  fflush(stdout);
}

void Returned(const char* what, int error) {
  printf("%s returned %d\n", what, error);
  fflush(stdout);
}

}  // namespace

int main() {
  ibv_device** const devices = ibv_get_device_list(nullptr);
  ibv_context* const context =
      devices != nullptr && devices[0] != nullptr ? ibv_open_device(devices[0]) : nullptr;
  if (context == nullptr) {
    perror("ibv_open_device");
    return 1;
  }
  ibv_free_device_list(devices);
  // One call whose reply is only bytes, and one whose reply shares memory.
  Say("query_port");
  ibv_port_attr port{};
  Returned("query_port", ibv_query_port(context, 1, &port));
  Say("create_cq");
  ibv_cq* const cq = ibv_create_cq(context, 1, nullptr, nullptr, 0);
  Returned("create_cq", cq != nullptr ? 0 : errno);
  if (cq != nullptr) ibv_destroy_cq(cq);
  ibv_close_device(context);
  return 0;
}
