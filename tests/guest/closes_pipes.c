/* A client that closes the pipes that it did not open, and opens pipes of its own with the same
 * numbers. Its messages arrive, and its pipes stay empty. The server sleeps between messages.
 * usage: closes_pipes server | closes_pipes client ADDRESS */
#include <dirent.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { kReceives = 16, kMostBefore = 2000, kAfter = 300, kPipes = 16 };
static const char kPort[] = "7471";
static const uint64_t kLast = UINT64_MAX;
static uint64_t buffer[kReceives + 1];
static struct ibv_mr* region;

static int die(const char* what) {
  perror(what);
  exit(1);
}

static struct rdma_cm_id* make(const char* address, int passive) {
  struct rdma_addrinfo hints = {.ai_flags = passive ? RAI_PASSIVE : 0,
                                .ai_port_space = RDMA_PS_TCP};
  struct rdma_addrinfo* info;
  struct ibv_qp_init_attr attr = {
      .cap = {.max_send_wr = 4, .max_recv_wr = kReceives, .max_send_sge = 1, .max_recv_sge = 1},
      .sq_sig_all = 1};
  struct rdma_cm_id* id;
  if (rdma_getaddrinfo(address, kPort, &hints, &info)) die("rdma_getaddrinfo");
  if (rdma_create_ep(&id, info, NULL, &attr)) die("rdma_create_ep");
  rdma_freeaddrinfo(info);
  return id;
}

static void receive_into(struct rdma_cm_id* id, uint64_t slot) {
  if (rdma_post_recv(id, (void*)slot, &buffer[slot], sizeof *buffer, region)) die("post_recv");
}

static int serve(void) {
  struct rdma_cm_id *listener = make(NULL, 1), *id;
  if (rdma_listen(listener, 1)) die("rdma_listen");
  if (rdma_get_request(listener, &id)) die("rdma_get_request");
  region = rdma_reg_msgs(id, buffer, sizeof buffer);
  for (uint64_t slot = 0; slot < kReceives; slot++) receive_into(id, slot);
  if (rdma_accept(id, NULL)) die("rdma_accept");
  for (uint64_t expected = 0;; expected++) {
    struct ibv_wc wc;
    if (rdma_get_recv_comp(id, &wc) <= 0 || wc.status != IBV_WC_SUCCESS) die("rdma_get_recv_comp");
    const uint64_t number = buffer[wc.wr_id];
    if (number == kLast) return printf("received all of %d\n", (int)expected) < 0;
    if (number != expected) return printf("%d instead of %d\n", (int)number, (int)expected), 1;
    receive_into(id, wc.wr_id);
  }
}

static void send_one(struct rdma_cm_id* id, uint64_t number) {
  struct ibv_wc wc;
  buffer[kReceives] = number;
  if (rdma_post_send(id, NULL, &buffer[kReceives], sizeof *buffer, region, IBV_SEND_INLINE)) {
    die("rdma_post_send");
  }
  while (ibv_poll_cq(id->send_cq, 1, &wc) == 0) {
  }
  if (wc.status != IBV_WC_SUCCESS) die(ibv_wc_status_str(wc.status));
}

/* Closes the pipes above standard error. Returns how many there were. */
static int close_pipes(void) {
  DIR* directory = opendir("/proc/self/fd");
  struct dirent* entry;
  int count = 0;
  while ((entry = readdir(directory)) != NULL) {
    const int fd = atoi(entry->d_name);
    struct stat status;
    if (fd <= 2 || fstat(fd, &status) || !S_ISFIFO(status.st_mode)) continue;
    close(fd);
    count++;
  }
  closedir(directory);
  return count;
}

static int send_all(const char* address) {
  struct rdma_cm_id* id = make(address, 0);
  region = rdma_reg_msgs(id, buffer, sizeof buffer);
  if (rdma_connect(id, NULL)) die("rdma_connect");
  uint64_t sent = 0;
  int closed = 0, ends[kPipes][2];
  while (!closed && sent < kMostBefore) {
    send_one(id, sent++);
    if (sent % 16 == 0) closed = close_pipes();
    nanosleep(&(struct timespec){0, 2000000}, NULL);
  }
  for (int i = 0; i < kPipes; i++) {
    if (pipe(ends[i])) die("pipe");
  }
  for (int i = 0; i < kAfter; i++) {
    send_one(id, sent++);
    if (i % 4 == 0) nanosleep(&(struct timespec){0, 2000000}, NULL);
  }
  send_one(id, kLast);
  int bytes = 0;
  for (int i = 0; i < kPipes; i++) {
    int unread = 0;
    if (ioctl(ends[i][0], FIONREAD, &unread)) die("FIONREAD");
    bytes += unread;
  }
  printf("closed %d, sent all of %d, %d bytes in own pipes\n", closed, (int)sent, bytes);
  return 0;
}

int main(int argc, char** argv) {
  alarm(90);
  close_pipes(); /* of the parent */
  setvbuf(stdout, NULL, _IOLBF, 0);
  return argc == 3 ? send_all(argv[2]) : serve();
}
