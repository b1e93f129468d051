/* rdmaemu for tests: a host with RDMA devices inside this process, faults, and control of time.
 *
 * The program keeps using libibverbs and librdmacm. This library provides their devices. A test
 * opens a host, runs the code under test, and closes the host:
 *
 *     struct rdmaemu_options options = {.size = sizeof options, .seed = 1};
 *     if (rdmaemu_open(&options) < 0) die(rdmaemu_last_error());
 *     rdmaemu_rule_add("name = \"no\", at = \"cm.req\", reject = 28", NULL, 0);
 *     ...                                     // rdma_connect() ends in RDMA_CM_EVENT_REJECTED
 *     rdmaemu_close();
 *
 * Unless its comment says otherwise, a function returns 0 or a negative errno, and any thread
 * may call it. rdmaemu_last_error() returns the reason of an error as a sentence. A client of a
 * host process (`rdmaemu run`) can change rules, devices, ports and time of that host, too.
 *
 * docs/embedding.md is the manual. */
#ifndef RDMAEMU_RDMAEMU_H
#define RDMAEMU_RDMAEMU_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns why the latest call of this thread failed and what to do, or "" after a successful
 * call. The string is valid until the thread's next call. */
const char* rdmaemu_last_error(void);

/* ---- a host in this process */

struct rdmaemu_device {
  const char* name;    /* "rxe0": letters, digits, '-', '_' */
  const char* profile; /* a name of docs/profiles.md, or a file; NULL: "rxe" */
  /* IPv4 or IPv6 addresses, separated by commas: "10.0.0.1,10.0.1.1/16". Their networks are the
   * host's routes. An address without a prefix is in a /24 (IPv4), a /64 (IPv6) or 127.0.0.0/8. */
  const char* addresses;
};

/* A member that is 0 or NULL selects the default. */
struct rdmaemu_options {
  size_t size;      /* sizeof(struct rdmaemu_options) */
  const char* name; /* the host's name in traces; default: "embedded" */
  /* Default: one device rxe0 with 127.0.0.1 and ::1. This machine need not have the addresses. */
  const struct rdmaemu_device* devices;
  size_t device_count;
  /* "virtual" (the default), "manual", "real", "scaled:K", "program" (virtual, with program_time).
   */
  const char* clock;
  /* Seeds all random choices: keys, numbers and the random decisions of rules. */
  uint64_t seed;
  const char* scenario_path; /* fault rules, as for `rdmaemu run --scenario` */
  const char* trace_path;    /* the trace, one JSON object per line */
  const char* pcap_path;     /* all packets */
  /* "10.99.0.0/16,...": networks where no neighbour answers and addresses cannot be resolved. */
  const char* silent_nets;
  /* "on" (the default). "off": every payload is copied when it is posted and delivered. */
  const char* payload_shortcuts;
  /* "10.0.0.254,...": neighbours through which the host reaches addresses outside its networks.
   * Without a gateway, rdma_resolve_addr returns ENETUNREACH for such an address. */
  const char* gateways;
  /* Not 0: the program runs in the hosts' time. The program's clocks show that time, and its
   * timers and time-outs follow that time. Time advances only while all threads wait. Needs the
   * clock "virtual" or "manual". The environment variable RDMAEMU_PROGRAM_TIME=1 has the same
   * effect. */
  int program_time;
  /* Not 0: all hosts of the process keep their latest trace records and packets in memory for
   * rdmaemu_report, at most so many bytes of each. Only the first host's value counts. */
  size_t report_bytes;
};

/* Opens this process's first host. NULL selects all defaults. Errors: -EBUSY when a host is
 * open, or the process is already a client of a host process. -ENOTSUP when the process runs on
 * another libibverbs. -EINVAL for a wrong option. */
int rdmaemu_open(const struct rdmaemu_options* options);

/* Ends all hosts. Calls on objects that the program still has open return EIO, and blocked calls
 * return. The program must not touch the objects' queues any more. -ENOENT when no host is open. */
int rdmaemu_close(void);

/* ---- more hosts in this process: machines that reach each other by their addresses
 *
 * The hosts share one clock and one network. As with network namespaces, each thread is on one
 * host, at first on the first host. Objects that the thread creates (event channels, device
 * lists, opened devices) belong to that host. The thread's calls about devices, ports and
 * addresses go to that host, too. An existing object stays on its host, whichever thread uses
 * the object. */

/* Adds a host. The host needs a name, and devices with addresses that no other host has. Its
 * clock is the first host's. A seed of 0 is derived from the first host's seed. A process has at
 * most eight hosts between rdmaemu_open and rdmaemu_close, removed hosts included. -ENOENT when
 * no first host is open. -EINVAL for a wrong option. */
int rdmaemu_host_add(const struct rdmaemu_options* options);

/* Puts this thread on the named host from now on. NULL: the first host. A thread may enter a
 * host that has ended. Calls there return EIO. -ENOENT when there is no such host. */
int rdmaemu_host_enter(const char* name);
/* Writes the name of this thread's host to `name`, cut to `bytes`. Returns the name's length. */
int rdmaemu_host_entered(char* name, size_t bytes);

/* Powers a host off without notice to its peers. Peers detect the end by their retries. Calls on
 * the host's objects return EIO, the program can destroy the objects, and blocked calls return.
 * A rule with `crash = true` has the same effect. A host of the same name can be added
 * afterwards. -ENOENT when there is no such host. */
int rdmaemu_host_remove(const char* name);

/* ---- time */

/* Returns the host's time in nanoseconds since the host was opened. A host process with the real
 * clock returns CLOCK_MONOTONIC's time. A host process with the manual clock starts at 0. A
 * negative result is an errno. */
int64_t rdmaemu_now(void);

/* Advances time by time_ns at once and does all work that becomes due meanwhile, even work that
 * waits for this program. 0 does the work that is ready now. Works with virtual and manual
 * clocks, and on a host process with the manual clock. -EOPNOTSUPP for clocks that run by
 * themselves. */
int rdmaemu_advance(uint64_t time_ns);

/* Advances time from one due item to the next, until no work is due. Stops early when the hosts
 * wait for this program, for example for its answer to a connection request. With real and
 * scaled clocks, does the work that is ready. On a host process, works with the manual clock
 * only, else returns -EOPNOTSUPP. -ELOOP when new work becomes due without end. */
int rdmaemu_run_until_idle(void);

/* Runs the hosts of this process until something happens on them. A program that polls for a
 * completion calls this between two polls. Returns 0 after the hosts did something. -ETIMEDOUT when
 * nothing happened for timeout_ms of the machine's time. Another thread may have acted meanwhile.
 * -EDEADLK when every thread of the program waits and no work is due on any host. -ENOENT when this
 * process has no embedded host. */
int rdmaemu_wait(uint64_t timeout_ms);

/* ---- fault rules, in the language of docs/faults.md */

/* The rules of all hosts of this process form one list, host by host.
 *
 * Appends a rule to the rules of the thread's host, or of the host that the rule names (host =
 * "b"). Example: "at = \"cm.req\", nth = 3, reject = 28". Writes the rule's name ("rule N" for a
 * rule without a name) to `name`, cut to name_bytes. `name` may be NULL. -EINVAL when the text is
 * wrong. In a program of `rdmaemu run --backend system` with rules, the functions act on the rules
 * of that run. -EOPNOTSUPP for a rule that only the emulator can apply; rdmaemu_last_error() says
 * what to use instead. */
int rdmaemu_rule_add(const char* rule, char* name, size_t name_bytes);
int rdmaemu_rule_remove(const char* name); /* -ENOENT */
int rdmaemu_rules_clear(void);
/* Releases a barrier. A rule with `hold = true` holds every event at its point until this call, or
 * until the rule is removed. `fired` counts the events that the rule has held. The rule remains and
 * holds the next events. -ENOENT when there is no rule of that name, or the rule never holds
 * anything. */
int rdmaemu_rule_release(const char* name);

/* Blocks until the rule has fired `times` times since the rule was added, at most for timeout_ms of
 * the machine's time. A test that uses a barrier calls this to wait until the barrier holds
 * something. Runs the hosts meanwhile. A timeout of 0 only checks. -ETIMEDOUT when the rule fired
 * less often. -ENOENT when there is no rule of that name. -EDEADLK when the program has one thread
 * and no work is due. */
int rdmaemu_rule_wait(const char* name, uint64_t times, uint64_t timeout_ms);

struct rdmaemu_rule {
  char name[132];
  char at[64];    /* "cm.req" */
  char does[252]; /* "reject = 28" */
  uint64_t matched, fired;
};
/* Writes at most `capacity` rules, in order. Returns how many rules exist. */
int rdmaemu_rules(struct rdmaemu_rule* rules, size_t capacity);

/* Writes the places that a rule's `at` can name at a point, one per line: "cm.req\ncm.mra\n...".
 * Points are "call", "cm", "event", "wc", "async", "packet" and "memory". Needs no host. Writes
 * at most `bytes`, the terminating 0 included. Returns the text's length, as snprintf(3) does.
 * -EINVAL when there is no such point. */
int rdmaemu_rule_places(const char* point, char* text, size_t bytes);
/* Writes the faults that make sense at a place such as "call.reg_mr", one per line: a name, a tab,
 * and the keys of a rule: "errno=ENOMEM\terrno = \"ENOMEM\"\n...". Nothing for a place without
 * likely faults. Needs no host. Writes and returns as rdmaemu_rule_places. */
int rdmaemu_rule_faults(const char* place, char* text, size_t bytes);

/* ---- devices, ports, addresses: as `rdmaemu device|port|address` */

int rdmaemu_device_remove(const char* device);
/* profile NULL: the profile that the device had before, or "rxe". */
int rdmaemu_device_add(const char* device, const char* profile);
int rdmaemu_port_set(const char* device, int up);
/* address: "10.0.0.1", or "10.0.0.1/16" with the prefix of its network. */
int rdmaemu_address_add(const char* device, const char* address);
int rdmaemu_address_remove(const char* address);
int rdmaemu_address_move(const char* address, const char* to_device);

/* ---- for messages of tests */

/* Writes the latest trace records, one per line, oldest first. Writes at most `bytes`, the
 * terminating 0 included. Returns the text's length, as snprintf(3) does. A text that does not
 * fit loses its beginning. */
int rdmaemu_timeline(char* text, size_t bytes);

/* Writes a report of the hosts of this process into a new directory DIRECTORY/NAME, and creates
 * DIRECTORY. If NAME exists, the new directory is NAME-2, NAME-3 and so on. Its files are
 * HOST.jsonl and HOST.pcapng of each host, rules.json (also rules that were removed) and
 * environment.txt. If the command rdmaemu is in the library's prefix, ladder.html is a sequence
 * chart. In NAME, characters other than letters, digits, '.' and '-' are replaced by '_'.
 *
 * Writes the new directory's path to `path`, cut to `bytes`. Returns the path's length. -ENOENT
 * when no embedded host is open. -EINVAL when the hosts were opened without report_bytes. Else
 * the errno of the file system. */
int rdmaemu_report(const char* directory, const char* name, char* path, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif /* RDMAEMU_RDMAEMU_H */
