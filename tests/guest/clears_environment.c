/* Clears the environment, as a server may do, and then uses RDMA for the first time. The host has
 * the address that the environment named. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <string.h>

#include "need.h"

int main(int count, char** arguments) {
  struct sockaddr_in address = {.sin_family = AF_INET};
  NEED(count == 2 && inet_pton(AF_INET, arguments[1], &address.sin_addr) == 1);
  NEED(clearenv() == 0);
  struct rdma_event_channel* const channel = rdma_create_event_channel();
  NEED(channel != NULL);
  struct rdma_cm_id* id;
  NEED(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
  NEED(rdma_bind_addr(id, (struct sockaddr*)&address) == 0);
  return 0;
}
