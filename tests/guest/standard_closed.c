/* A program that was started without standard input, output and error. It may print there all the
 * same, so none of the libraries' descriptors must have these numbers. */
#include <fcntl.h>
#include <rdma/rdma_cma.h>
#include <unistd.h>

static int is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

int main(void) {
  for (int fd = 0; fd < 3; fd++) close(fd);
  struct rdma_event_channel* const channel = rdma_create_event_channel();
  if (channel == NULL) return 1;
  struct rdma_cm_id* id;
  if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) != 0) return 2;
  int count = 0;
  struct ibv_context** const devices = rdma_get_devices(&count);
  if (count == 0 || ibv_create_comp_channel(devices[0]) == NULL) return 3;
  for (int fd = 0; fd < 3; fd++) {
    if (is_open(fd)) return 10 + fd;
  }
  return 0;
}
