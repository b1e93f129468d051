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
 * rdmaemu_last_error() tells in a sentence; it may be called by any thread. Rules, devices, ports
 * and time can be changed on a host process as well, whose client this process is (`rdmaemu run`).
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
  const char* name;    /* "rxe0": letters, digits, '-', '_' */
  const char* profile; /* "rxe", "siw" or the path of a profile; NULL: "rxe" */
  /* IPv4 or IPv6, with commas between: "10.0.0.1,10.0.1.1/16". The networks are the host's routes;
   * an address without a prefix is in a /24 (IPv4), a /64 (IPv6) or 127.0.0.0/8. */
  const char* addresses;
};

/* Members that are 0 or NULL mean the default. */
struct rdmaemu_options {
  size_t size;      /* sizeof(struct rdmaemu_options) */
  const char* name; /* of the host, in traces: "embedded" */
  /* One device rxe0 with 127.0.0.1 and ::1. Addresses need not be this machine's. */
  const struct rdmaemu_device* devices;
  size_t device_count;
  /* "virtual" (the default), "manual", "real", "scaled:K", "program" (virtual, with program_time).
   */
  const char* clock;
  /* Fixes all that is chosen at random: keys, numbers, draws of rules. */
  uint64_t seed;
  const char* scenario_path; /* fault rules, as of `rdmaemu run --scenario` */
  const char* trace_path;    /* what happens, a JSON object a line */
  const char* pcap_path;     /* all packets */
  /* "10.99.0.0/16,...": where nobody answers and addresses cannot be resolved. */
  const char* silent_nets;
  /* "on" (the default); "off": every payload is copied when it is posted and delivered. */
  const char* payload_shortcuts;
  /* "10.0.0.254,...": by way of which neighbours the host reaches what is in none of its networks;
   * without one, rdma_resolve_addr answers ENETUNREACH there. */
  const char* gateways;
  /* Not 0: the program lives in the hosts' time. Its clocks show that time, its timers and
   * time-outs follow it, and it passes only while all threads wait. Clocks "virtual" and "manual";
   * the environment variable RDMAEMU_PROGRAM_TIME=1 says the same. */
  int program_time;
};

/* Opens this process's first host; NULL: all defaults. -EBUSY: there is one, or the process is a
 * client of a host process already. -ENOTSUP: the process runs on another libibverbs. -EINVAL: an
 * option is wrong. */
int rdmaemu_open(const struct rdmaemu_options* options);

/* Ends all hosts. What the program still has open of them is dead: calls answer EIO, who waits
 * returns; their queues must not be touched any more. -ENOENT: there is none. */
int rdmaemu_close(void);

/* ---- more hosts in this process: machines that reach each other by their addresses
 *
 * They have one clock and one network. As with network namespaces, a thread is on one of them, at
 * first on the first: what it makes anew (event channels, device lists, opened devices) and what it
 * asks of devices, ports and addresses is there. What was made before stays where it is, whichever
 * thread uses it. */

/* Adds a host. It needs a name, and devices with addresses that no other one has; its clock is the
 * first one's, and its seed follows from the first one's where it is 0. At most eight between
 * rdmaemu_open and rdmaemu_close, those that were removed among them. -ENOENT: there is no first
 * one. -EINVAL: an option is wrong. */
int rdmaemu_host_add(const struct rdmaemu_options* options);

/* From now on this thread is on that host; NULL: the first one. One that has ended can be entered,
 * and answers EIO. -ENOENT. */
int rdmaemu_host_enter(const char* name);
/* The name of the host that this thread is on, cut to `bytes`; returns its length. */
int rdmaemu_host_entered(char* name, size_t bytes);

/* Power off: nobody is told. Peers learn of it by their retries; what this program has of it
 * answers EIO and can be destroyed, and who waits for it returns. So does a rule with `crash =
 * true`. A host of the same name can be added afterwards. -ENOENT. */
int rdmaemu_host_remove(const char* name);

/* ---- time */

/* The host's time in nanoseconds; 0 when it was opened. A host process's is CLOCK_MONOTONIC's with
 * the real clock, and begins at 0 with the manual one. Negative: an errno. */
int64_t rdmaemu_now(void);

/* Lets so much time pass at once, with everything that is due in it, also what waits for this
 * program. 0: does what is ready at this moment. Virtual and manual clocks, of a host process the
 * manual one; -EOPNOTSUPP for those that run by themselves. */
int rdmaemu_advance(uint64_t time_ns);

/* Lets time jump from one thing that is due to the next, until nothing is, or until this program is
 * awaited (it has a request that it has not answered, say). Real and scaled clocks: does what is
 * ready; of a host process -EOPNOTSUPP but with the manual clock. -ELOOP: it never ends. */
int rdmaemu_run_until_idle(void);

/* Waits until something happens on the hosts of this process, and drives them meanwhile. A program
 * that looks for a completion calls it between two looks. Returns 0 after the hosts did something.
 * -ETIMEDOUT: nothing happened for timeout_ms of the machine's time; another thread may have acted.
 * -EDEADLK: every thread of the program waits, and nothing is due on any host. -ENOENT: this
 * process has no embedded host. */
int rdmaemu_wait(uint64_t timeout_ms);

/* ---- fault rules, in the words of docs/faults.md */

/* Rules of all hosts of this process are one list, host by host.
 *
 * Adds a rule behind the others of the host that the thread is on, or of the one that the rule
 * names (host = "b"): "at = \"cm.req\", nth = 3, reject = 28". Its name ("rule N" when
 * it has none) goes to `name` (may be NULL), cut to name_bytes. -EINVAL: the text is wrong. */
int rdmaemu_rule_add(const char* rule, char* name, size_t name_bytes);
int rdmaemu_rule_remove(const char* name); /* -ENOENT */
int rdmaemu_rules_clear(void);
/* Barriers: a rule with `hold = true` keeps what comes to its point until this call, or until the
 * rule is removed; `fired` counts what came. The rule stays, and holds what comes next. -ENOENT:
 * there is none of that name, or it holds nothing ever. */
int rdmaemu_rule_release(const char* name);

/* Waits until the rule has fired so often since it was added, for so long of the machine's time: a
 * test that uses a barrier knows by it that something has come. Drives the host meanwhile; 0 looks.
 * -ETIMEDOUT. -ENOENT: there is none of that name. -EDEADLK: the program has one thread, and
 * nothing is due. */
int rdmaemu_rule_wait(const char* name, uint64_t times, uint64_t timeout_ms);

struct rdmaemu_rule {
  char name[132];
  char at[64];    /* "cm.req" */
  char does[252]; /* "reject = 28" */
  uint64_t matched, fired;
};
/* Fills at most `capacity`, in order; returns how many there are. */
int rdmaemu_rules(struct rdmaemu_rule* rules, size_t capacity);

/* The places that a rule's `at` can name at a point ("call", "cm", "event", "wc", "async",
 * "packet", "memory"), a line each: "cm.req\ncm.mra\n...". Needs no host. Writes at most `bytes`,
 * the terminating 0 included, and returns the text's length, as snprintf(3). -EINVAL: there is no
 * such point. */
int rdmaemu_rule_places(const char* point, char* text, size_t bytes);

/* ---- devices, ports, addresses: as `rdmaemu device|port|address` */

int rdmaemu_device_remove(const char* device);
/* profile NULL: the one it had, or "rxe". */
int rdmaemu_device_add(const char* device, const char* profile);
int rdmaemu_port_set(const char* device, int up);
/* address: "10.0.0.1", or with the prefix of its network "10.0.0.1/16". */
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
