/* rdmaemu for tests: a host with RDMA devices inside this process, faults, and time under control.
 *
 * The program goes on using libibverbs and librdmacm; this library gives them their devices. A
 * test opens a host, runs what it tests, and closes the host:
 *
 *     struct rdmaemu_options options = {.size = sizeof options, .seed = 1};
 *     if (rdmaemu_open(&options) < 0) die(rdmaemu_last_error());
 *     rdmaemu_rule_add("name = \"no\", at = \"cm.req\", reject = 28", NULL, 0);
 *     ...                                     // rdma_connect() ends in RDMA_CM_EVENT_REJECTED
 *     rdmaemu_close();
 *
 * Unless a function says otherwise it returns 0, or a negative errno, whose reason
 * rdmaemu_last_error() tells in a sentence; it may be called by any thread. Rules, devices and
 * ports can be changed on a host process as well, whose client this process is (`rdmaemu run`).
 *
 * docs/embedding.md is the manual. */
#ifndef RDMAEMU_RDMAEMU_H
#define RDMAEMU_RDMAEMU_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Why the latest call of this thread failed, and what to do; "" after one that did not. Valid until
 * the thread's next call. */
const char* rdmaemu_last_error(void);

/* ---- a host in this process */

struct rdmaemu_device {
  const char* name;      /* "rxe0": letters, digits, '-', '_' */
  const char* profile;   /* "rxe", "siw" or the path of a profile; NULL: "rxe" */
  const char* addresses; /* IPv4 or IPv6, with commas between: "10.0.0.1,10.0.0.2" */
};

/* Members that are 0 or NULL mean the default. */
struct rdmaemu_options {
  size_t size;      /* sizeof(struct rdmaemu_options) */
  const char* name; /* of the host, in traces: "embedded" */
  /* One device rxe0 with 127.0.0.1 and ::1. Addresses need not be this machine's. */
  const struct rdmaemu_device* devices;
  size_t device_count;
  /* "virtual" (the default), "manual", "real", "scaled:K". */
  const char* clock;
  /* Fixes all that is chosen at random: keys, numbers, draws of rules. */
  uint64_t seed;
  const char* scenario_path; /* fault rules, as of `rdmaemu run --scenario` */
  const char* trace_path;    /* what happens, a JSON object a line */
  const char* pcap_path;     /* all packets */
  /* "10.99.0.0/16,...": where nobody answers and addresses cannot be resolved. */
  const char* silent_nets;
};

/* Opens this process's host; NULL: all defaults. -EBUSY: there is one, or the process is a client
 * of a host process already. -ENOTSUP: the process runs on another libibverbs. -EINVAL: an option
 * is wrong. */
int rdmaemu_open(const struct rdmaemu_options* options);

/* Ends the host. What the program still has open of it is dead: calls answer EIO, who waits
 * returns; its queues must not be touched any more. -ENOENT: there is none. */
int rdmaemu_close(void);

/* ---- time (a host in this process; -ENOENT without) */

/* The host's time in nanoseconds; 0 when it was opened. Negative: an errno. */
int64_t rdmaemu_now(void);

/* Lets so much time pass at once, with everything that is due in it, also what waits for this
 * program. 0: does what is ready at this moment. Virtual and manual clocks; -EOPNOTSUPP for those
 * that run by themselves. */
int rdmaemu_advance(uint64_t time_ns);

/* Lets time jump from one thing that is due to the next, until nothing is, or until this program is
 * awaited (it has a request that it has not answered, say). Real and scaled clocks: does what is
 * ready. -ELOOP: it never ends. */
int rdmaemu_run_until_idle(void);

/* ---- fault rules, in the words of docs/faults.md */

/* Adds a rule behind the others: "at = \"cm.req\", nth = 3, reject = 28". Its name ("rule N" when
 * it has none) goes to `name` (may be NULL), cut to name_bytes. -EINVAL: the text is wrong. */
int rdmaemu_rule_add(const char* rule, char* name, size_t name_bytes);
int rdmaemu_rule_remove(const char* name); /* -ENOENT */
int rdmaemu_rules_clear(void);
/* Barriers: a rule with `hold = true` keeps what comes to its point until this call, or until the
 * rule is removed; `fired` counts what came. The rule stays, and holds what comes next. -ENOENT:
 * there is none of that name, or it holds nothing ever. */
int rdmaemu_rule_release(const char* name);

struct rdmaemu_rule {
  char name[132];
  char at[64];    /* "cm.req" */
  char does[252]; /* "reject = 28" */
  uint64_t matched, fired;
};
/* Fills at most `capacity`, in order; returns how many there are. */
int rdmaemu_rules(struct rdmaemu_rule* rules, size_t capacity);

/* ---- devices, ports, addresses: as `rdmaemu device|port|address` */

int rdmaemu_device_remove(const char* device);
/* profile NULL: the one it had, or "rxe". */
int rdmaemu_device_add(const char* device, const char* profile);
int rdmaemu_port_set(const char* device, int up);
int rdmaemu_address_add(const char* device, const char* address);
int rdmaemu_address_remove(const char* address);
int rdmaemu_address_move(const char* address, const char* to_device);

/* ---- for messages of tests */

/* What happened lately, a line each, oldest first. Writes at most `bytes`, the terminating 0
 * included, and returns the text's length, as snprintf(3); a text that does not fit is cut at its
 * beginning. */
int rdmaemu_timeline(char* text, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif /* RDMAEMU_RDMAEMU_H */
