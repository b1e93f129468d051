// Copies memory between two processes with librpma. `tools/compatibility run librpma` compiles
// and runs this program.
//
//   rpma_copy server ADDRESS PORT    exposes 64 KiB of memory to one client
//   rpma_copy client ADDRESS PORT    writes, flushes and reads this memory
#include <librpma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kBytes = 64 << 10, kMessageBytes = 16, kWordBytes = 8 };

static const char kWord[kWordBytes] = {'a', 't', 'o', 'm', 'i', 'c', '!', '!'};

// Ends the program when a call of librpma has failed.
static void Check(int error, const char* call) {
  if (error == 0) return;
  fprintf(stderr, "error: %s: %s\n", call, rpma_err_2str(error));
  exit(1);
}

static void Expect(int is_true, const char* what) {
  if (is_true) return;
  fprintf(stderr, "error: %s\n", what);
  exit(1);
}

#define CALL(function, ...) Check(function(__VA_ARGS__), #function)

struct Memory {
  unsigned char* bytes;
  struct rpma_mr_local* region;
};

static struct Memory Register(struct rpma_peer* peer, size_t size, int usage) {
  struct Memory memory = {aligned_alloc(4096, 2 * kBytes), NULL};
  Expect(memory.bytes != NULL, "no memory");
  memset(memory.bytes, 0, 2 * kBytes);
  CALL(rpma_mr_reg, peer, memory.bytes, size, usage, &memory.region);
  return memory;
}

static void Deregister(struct Memory* memory) {
  CALL(rpma_mr_dereg, &memory->region);
  free(memory->bytes);
}

static unsigned char PatternAt(size_t offset) { return (unsigned char)(offset * 7 + offset / 256); }

static void ExpectEvent(struct rpma_conn* connection, enum rpma_conn_event wanted) {
  enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
  CALL(rpma_conn_next_event, connection, &event);
  if (event == wanted) return;
  fprintf(stderr, "error: event %s, expected %s\n", rpma_utils_conn_event_2str(event),
          rpma_utils_conn_event_2str(wanted));
  exit(1);
}

// Blocks until the next completion, which must be a success of this opcode.
static void ExpectCompletion(struct rpma_conn* connection, enum ibv_wc_opcode opcode,
                             const char* what) {
  struct rpma_cq* queue = NULL;
  CALL(rpma_conn_get_cq, connection, &queue);
  struct ibv_wc completion;
  int error;
  while ((error = rpma_cq_get_wc(queue, 1, &completion, NULL)) == RPMA_E_NO_COMPLETION) {
    CALL(rpma_cq_wait, queue);
  }
  Check(error, "rpma_cq_get_wc");
  if (completion.status == IBV_WC_SUCCESS && completion.opcode == opcode) return;
  fprintf(stderr, "error: %s: status %s, opcode %d\n", what, ibv_wc_status_str(completion.status),
          completion.opcode);
  exit(1);
}

static void Serve(struct rpma_peer* peer, const char* address, const char* port) {
  struct Memory memory = Register(
      peer, kBytes,
      RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY);
  struct Memory message = Register(peer, kMessageBytes, RPMA_MR_USAGE_RECV | RPMA_MR_USAGE_SEND);
  unsigned char descriptor[UINT8_MAX];
  size_t size = 0;
  CALL(rpma_mr_get_descriptor_size, memory.region, &size);
  Expect(size <= sizeof descriptor, "the descriptor is longer than private data");
  CALL(rpma_mr_get_descriptor, memory.region, descriptor);

  struct rpma_ep* listener = NULL;
  struct rpma_conn_req* request = NULL;
  struct rpma_conn* connection = NULL;
  CALL(rpma_ep_listen, peer, address, port, &listener);
  CALL(rpma_ep_next_conn_req, listener, NULL, &request);
  CALL(rpma_conn_req_recv, request, message.region, 0, kMessageBytes, NULL);
  const struct rpma_conn_private_data data = {descriptor, (uint8_t)size};
  CALL(rpma_conn_req_connect, &request, &data, &connection);
  ExpectEvent(connection, RPMA_CONN_ESTABLISHED);

  ExpectCompletion(connection, IBV_WC_RECV, "the client's message");
  Expect(strcmp((char*)message.bytes, "written") == 0, "another message than the client's");
  Expect(memcmp(memory.bytes, kWord, kWordBytes) == 0, "the word of the atomic write is missing");
  for (size_t i = kWordBytes; i < kBytes; i++) {
    Expect(memory.bytes[i] == PatternAt(i), "a byte of the write is wrong");
  }
  strcpy((char*)message.bytes, "seen");
  CALL(rpma_send, connection, message.region, 0, kMessageBytes, RPMA_F_COMPLETION_ALWAYS, NULL);
  ExpectCompletion(connection, IBV_WC_SEND, "the answer");
  printf("server: the client wrote %d bytes\n", kBytes);

  ExpectEvent(connection, RPMA_CONN_CLOSED);
  CALL(rpma_conn_disconnect, connection);
  CALL(rpma_conn_delete, &connection);
  CALL(rpma_ep_shutdown, &listener);
  Deregister(&message);
  Deregister(&memory);
}

static void Copy(struct rpma_peer* peer, const char* address, const char* port) {
  struct Memory source = Register(peer, kBytes, RPMA_MR_USAGE_WRITE_SRC);
  struct Memory copy = Register(peer, kBytes, RPMA_MR_USAGE_READ_DST);
  struct Memory message = Register(peer, kMessageBytes, RPMA_MR_USAGE_RECV | RPMA_MR_USAGE_SEND);
  for (size_t i = 0; i < kBytes; i++) source.bytes[i] = PatternAt(i);

  struct rpma_conn_req* request = NULL;
  struct rpma_conn* connection = NULL;
  CALL(rpma_conn_req_new, peer, address, port, NULL, &request);
  CALL(rpma_conn_req_connect, &request, NULL, &connection);
  ExpectEvent(connection, RPMA_CONN_ESTABLISHED);
  struct rpma_conn_private_data data = {NULL, 0};
  struct rpma_mr_remote* remote = NULL;
  size_t remote_size = 0;
  CALL(rpma_conn_get_private_data, connection, &data);
  CALL(rpma_mr_remote_from_descriptor, data.ptr, data.len, &remote);
  CALL(rpma_mr_remote_get_size, remote, &remote_size);
  Expect(remote_size == kBytes, "the server's memory has another size");

  CALL(rpma_write, connection, remote, 0, source.region, 0, kBytes, RPMA_F_COMPLETION_ON_ERROR,
       NULL);
  CALL(rpma_flush, connection, remote, 0, kBytes, RPMA_FLUSH_TYPE_VISIBILITY,
       RPMA_F_COMPLETION_ALWAYS, NULL);
  // Without native flush, librpma flushes by reading.
  ExpectCompletion(connection, IBV_WC_RDMA_READ, "the flush");
  CALL(rpma_read, connection, copy.region, 0, remote, 0, kBytes, RPMA_F_COMPLETION_ALWAYS, NULL);
  ExpectCompletion(connection, IBV_WC_RDMA_READ, "the read");
  Expect(memcmp(copy.bytes, source.bytes, kBytes) == 0, "the read bytes are not those written");
  printf("client: wrote, flushed and read %d bytes\n", kBytes);

  CALL(rpma_atomic_write, connection, remote, 0, kWord, RPMA_F_COMPLETION_ALWAYS, NULL);
  ExpectCompletion(connection, IBV_WC_RDMA_WRITE, "the atomic write");
  CALL(rpma_recv, connection, message.region, 0, kMessageBytes, NULL);
  // The receive and the send use one buffer: the server answers after it has the message.
  strcpy((char*)message.bytes, "written");
  CALL(rpma_send, connection, message.region, 0, kMessageBytes, RPMA_F_COMPLETION_ON_ERROR, NULL);
  ExpectCompletion(connection, IBV_WC_RECV, "the server's answer");
  Expect(strcmp((char*)message.bytes, "seen") == 0, "another answer than the server's");
  printf("client: the server has seen the write\n");

  CALL(rpma_conn_disconnect, connection);
  ExpectEvent(connection, RPMA_CONN_CLOSED);
  CALL(rpma_mr_remote_delete, &remote);
  CALL(rpma_conn_delete, &connection);
  Deregister(&message);
  Deregister(&copy);
  Deregister(&source);
}

int main(int argc, char** argv) {
  const int is_server = argc == 4 && strcmp(argv[1], "server") == 0;
  if (argc != 4 || (!is_server && strcmp(argv[1], "client") != 0)) {
    fprintf(stderr, "usage: rpma_copy server|client ADDRESS PORT\n");
    return 2;
  }
  struct ibv_context* device = NULL;
  struct rpma_peer* peer = NULL;
  CALL(rpma_utils_get_ibv_context, argv[2],
       is_server ? RPMA_UTIL_IBV_CONTEXT_LOCAL : RPMA_UTIL_IBV_CONTEXT_REMOTE, &device);
  CALL(rpma_peer_new, device, &peer);
  (is_server ? Serve : Copy)(peer, argv[2], argv[3]);
  CALL(rpma_peer_delete, &peer);
  return 0;
}
