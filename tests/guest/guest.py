"""The libraries' effects on a process beside RDMA: each sentence of docs/processes.md."""

import errno
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import calls
from programs import LIBRARIES, LIMIT_S, OUTPUT, build, run  # before `emulated`
import emulated
from emulated import Emulator, Failure, free_addresses


def a_full_descriptor_table_is_emfile_and_leaves_nothing_at_the_host():
    binary = build("descriptor_limit")
    with Emulator() as emulator:
        program = emulator.start("guest", free_addresses(1)[0], [binary])
        if not program.wait_for_text("at the limit", LIMIT_S):
            raise Failure("the program did not get there\n" + program.describe())
        held = [group for group in emulator.host("guest")["groups"] if group["contexts"] > 0]
        if [(group["contexts"], group["channels"]) for group in held] != [(1, 1)]:
            raise Failure("left behind: %s" % held)
        program.process.stdin.close()
        program.wait(LIMIT_S)


def the_hosts_death_reaches_a_program_with_large_thread_local_storage():
    binary = build("large_tls")
    with Emulator() as emulator:
        program = emulator.start("guest", free_addresses(1)[0], [binary])
        if not program.wait_for_text("waiting", LIMIT_S):
            raise Failure("the program did not begin\n" + program.describe())
        os.kill(emulator.host("guest")["pid"], signal.SIGKILL)
        program.wait(LIMIT_S)
        program.expect(r"^result -1: Input/output error$")


def what_needs_the_libraries_thread_fails_without_it():
    binary = build("no_thread", "-rdynamic")
    with Emulator() as emulator:
        run(emulator, [binary]).expect(r"^open_device 0 1$", r"^create_event_channel 0 1$",
                                       r"^refused [2-9]$")


def a_program_that_closes_the_descriptors_keeps_its_files():
    binary = build("closes_all")
    with Emulator() as emulator:
        run(emulator, [binary, "self", OUTPUT]).expect(r"^error EIO$", r"^changed 0$")


def a_forked_child_that_closes_the_descriptors_keeps_its_files():
    binary = build("closes_all")
    with Emulator() as emulator:
        run(emulator, [binary, "child", OUTPUT]).expect(r"^changed 0$")


def go_on(program):
    program.process.stdin.write(b"\n")
    program.process.stdin.flush()


def forks_while(emulator, program, resume):
    """The host does not answer until `resume`, but fork() must return."""
    go_on(program)
    forked = program.wait_for_text("forked", LIMIT_S)
    resume()
    if not forked:
        raise Failure("fork() waits\n" + program.describe())
    go_on(program)
    if program.wait(LIMIT_S) != 0:
        raise Failure("the program failed\n" + program.describe())
    program.expect(r"^forked 0$", r"^used 0$")


def fork_does_not_wait_for_a_host():
    with Emulator() as emulator:
        program = emulator.start("guest", free_addresses(1)[0], [build("forks")])
        if not program.wait_for_text("ready", LIMIT_S):
            raise Failure("the program did not begin\n" + program.describe())
        host = emulator.host("guest")["pid"]
        os.kill(host, signal.SIGSTOP)
        forks_while(emulator, program, lambda: os.kill(host, signal.SIGCONT))


def fork_does_not_wait_for_a_call_of_another_thread():
    rule = os.path.join(OUTPUT, "held.toml")
    with open(rule, "w") as text:
        text.write('[[fault]]\nname = "held"\nat = "call.reg_mr"\nhold = true\n')
    with Emulator() as emulator:
        program = emulator.start("guest", free_addresses(1)[0], [build("forks"), "call"],
                                 ["--scenario", rule])
        if not program.wait_for_text("ready", LIMIT_S):
            raise Failure("the program did not begin\n" + program.describe())
        held = emulator.rdmaemu("fault", "wait", "--host", "guest", "held", "--timeout", "60s")
        if held.returncode != 0:
            raise Failure("the call is not held: " + held.stderr)
        forks_while(emulator, program,
                    lambda: emulator.rdmaemu("fault", "release", "--host", "guest", "held"))
        program.expect(r"^registered 1$")


def librdmacm_stays_while_it_looks_a_name_up():
    binary = build("unloads", "-rdynamic")
    with Emulator() as emulator:
        run(emulator, [binary]).expect(r"^dlclose 0$", r"^alive$")


EMBEDDED = """
import ctypes
verbs = ctypes.CDLL("libibverbs.so.1", mode=ctypes.DEFAULT_MODE)  # RTLD_LOCAL
verbs.ibv_get_device_list.restype = ctypes.c_void_p
rdmaemu = ctypes.CDLL("librdmaemu.so.1")
rdmaemu.rdmaemu_last_error.restype = ctypes.c_char_p
opened = rdmaemu.rdmaemu_open(None)
count = ctypes.c_int(0)
if opened == 0:
    verbs.ibv_get_device_list(ctypes.byref(count))
rule = rdmaemu.rdmaemu_rule_add(b'name = "no", at = "call.alloc_pd", errno = "ENOMEM"', None, 0)
print("opened %d, %d device, rule %d" % (opened, count.value, rule),
      rdmaemu.rdmaemu_last_error().decode())
"""


def run_with_libraries(argv):
    """Runs a program that brings its host itself."""
    path = ":".join(os.path.abspath(folder) for folder in LIBRARIES)
    return subprocess.run(argv, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=LIMIT_S, env=dict(os.environ, LD_LIBRARY_PATH=path))


def an_embedded_host_serves_libraries_that_python_loads():
    done = run_with_libraries([sys.executable, "-c", EMBEDDED])
    if done.stdout.strip() != "opened 0, 1 device, rule 0":
        raise Failure(done.stdout)


def threads_are_clean_under(kind, flags=(), prefix=(), env=None):
    binary = build("threads", *flags)
    with Emulator() as emulator:
        program = run(emulator, [*prefix, binary], env=env)
        program.expect(r"^done: 600 sent, 600 received$")
        for word in ("WARNING: ThreadSanitizer", "ERROR: AddressSanitizer", "sigprocmask"):
            if word in program.output:
                raise Failure("%s is not silent\n%s" % (kind, program.describe()))


def threads_are_clean_by_themselves():
    threads_are_clean_under("the program")


def threads_are_clean_under_thread_sanitizer():
    threads_are_clean_under("tsan", ["-fsanitize=thread"], env={"TSAN_OPTIONS": "exitcode=66"})


def threads_are_clean_under_address_sanitizer():
    threads_are_clean_under("asan", ["-fsanitize=address"],
                            env={"ASAN_OPTIONS": "detect_leaks=1"})


def threads_are_clean_under_valgrind():
    valgrind = [emulated.need("valgrind"), "--error-exitcode=66", "--leak-check=full",
                "--show-leak-kinds=definite,indirect,possible",
                "--errors-for-leak-kinds=definite,indirect,possible"]
    threads_are_clean_under("valgrind", prefix=valgrind)


def threads_run_under_strace():
    threads_are_clean_under("strace", prefix=[emulated.need("strace"), "-f", "-o", "/dev/null"])


def threads_run_under_gdb():
    # gdb writes its lines about threads into those of the program.
    threads_are_clean_under("gdb", prefix=[
        emulated.need("gdb"), "-q", "-batch", "-return-child-result",
        "-ex", "set print thread-events off", "-ex", "run", "--args"])


def destructors_and_atexit_handlers_use_devices():
    used = "queried 1, registered 1, freed 1$"
    with Emulator() as emulator:
        run(emulator, [build("destructors")]).expect("^atexit: " + used, "^destructor: " + used,
                                                     "^closed 1$")


def sandbox(error, calls):
    """Returns the beginning of a command. The kernel refuses these calls to the rest of the
    command."""
    table = dict(line.split() for line in subprocess.run(
        [build("calls")], text=True, stdout=subprocess.PIPE, check=True).stdout.splitlines())
    return [build("sandbox"), str(error), table[calls]]


def run_in(prefix, argv, options=()):
    """Runs the program in a sandbox to its end. Returns the program and its status."""
    with Emulator() as emulator:
        program = emulator.start("guest", free_addresses(1)[0], argv, options=options, prefix=prefix)
        return program, program.wait(LIMIT_S)


def works_in(prefix, argv, *patterns):
    program, status = run_in(prefix, argv)
    if status != 0:
        raise Failure("the program failed\n" + program.describe())
    program.expect(*patterns)


MOVED = r"^done: 600 sent, 600 received$"
RIGHTS = [r"^%d bytes: refused 1, stayed 1, read 1, came 1$" % size for size in (8, 8192)]


def data_moves_where_process_vm_calls_are_refused():
    for error in (errno.EPERM, errno.ENOSYS):
        works_in(sandbox(error, "process_vm"), [build("threads")], MOVED)


def pages_keep_their_rights_with_and_without_process_vm_calls():
    for prefix in ([], sandbox(errno.EPERM, "process_vm")):
        works_in(prefix, [build("rights")], *RIGHTS)


def works_embedded_in(prefix, program, *patterns):
    """A library that opens the embedded host is loaded before the program."""
    library = build("embeds", "-shared", "-fPIC", "-Wl,--no-as-needed", "-l:librdmaemu.so.1")
    done = run_with_libraries([*prefix, "env", "LD_PRELOAD=" + library, build(program)])
    found = [pattern for pattern in patterns if re.search(pattern, done.stdout, re.MULTILINE)]
    if done.returncode != 0 or len(found) < len(patterns) or "LD_PRELOAD" in done.stdout:
        raise Failure("status %s\n%s" % (done.returncode, done.stdout))


def an_embedded_host_serves_a_program_whose_library_links_it():
    works_embedded_in([], "threads", MOVED)


def data_moves_on_an_embedded_host_where_process_vm_calls_are_refused():
    for error in (errno.EPERM, errno.ENOSYS):
        works_embedded_in(sandbox(error, "process_vm"), "threads", MOVED)
        works_embedded_in(sandbox(error, "process_vm"), "rights", *RIGHTS)


def run_says_why_where_memory_cannot_be_reached_at_all():
    program, status = run_in(sandbox(errno.EPERM, "memory"), [build("threads")])
    if status != 125:
        raise Failure("not refused\n" + program.describe())
    program.expect(r"error: .*process_vm_readv.*seccomp")


def hosts_start_where_close_range_is_refused():
    for error in (errno.EPERM, errno.ENOSYS):
        works_in(sandbox(error, "close_range"), [build("threads")], MOVED)


def work_done_by(pid):
    """Returns how often the process gave up or lost the processor, and its processor time in clock
    ticks of 10 ms (proc(5))."""
    with open("/proc/%d/status" % pid) as status:
        switches = sum(map(int, re.findall(r"ctxt_switches:\s+(\d+)", status.read())))
    with open("/proc/%d/stat" % pid) as stat:
        return switches, sum(map(int, stat.read().rpartition(")")[2].split()[11:13]))


def a_program_of_run_gets_no_other_host_when_its_host_has_ended():
    with Emulator() as emulator:
        program = emulator.start("guest", free_addresses(1)[0], [
            "sh", "-c", '"$RDMAEMU_BIN" stop guest; ibv_devices; echo "status $?"'],
            ["--device", "foo0=siw"])
        program.wait(LIMIT_S)
        if "host 'guest' has ended" not in program.output or "rxe0" in program.output:
            raise Failure(program.describe())
        if emulator.host("guest") is not None:
            raise Failure("there is another host of that name\n" + program.describe())


def a_program_that_clears_its_environment_stays_on_its_host():
    address = free_addresses(1)[0]
    with Emulator() as emulator:
        program = emulator.start("guest", address, [build("clears_environment"), address])
        if program.wait(LIMIT_S) != 0:
            raise Failure(program.describe())


def a_program_hears_where_its_ended_hosts_log_is():
    with Emulator() as emulator:
        rule = os.path.join(OUTPUT, "crash.toml")
        with open(rule, "w") as text:
            text.write("[[fault]]\nat = \"call.create_qp\"\ncrash = true\n")
        log = os.path.join(emulator.directory, "guest.log")
        program = emulator.start("guest", free_addresses(1)[0], [build("rights")], ["--scenario", rule])
        program.wait(LIMIT_S)
        if "the reason may be in its log, %s" % log not in program.output:
            raise Failure(program.describe())
        with open(log) as text:
            if "crash = true" not in text.read():
                raise Failure("%s\n%s" % (program.describe(), log))


def children_create_ids_while_other_threads_do():
    with Emulator() as emulator:
        run(emulator, [build("forks_ids")])


def a_childs_posts_miss_the_queues_that_replace_its_parents():
    with Emulator() as emulator:
        run(emulator, [build("forks_queues")])
        run(emulator, [build("forks_queues"), "interrupted"])


MOST_STACK_BYTES = 13 * 1024  # with the C library's data of a thread


def calls_need_little_stack():
    if emulated.UNDER_LAYER or emulated.CHECKS:
        raise emulated.Skip("recording and checking a call needs more")
    address = free_addresses(1)[0]
    with Emulator() as emulator:
        program = emulator.start("guest", address, [build("small_stacks"), address])
        if program.wait(LIMIT_S) != 0:
            raise Failure("the program failed\n" + program.describe())
        program.expect(r"^used \d+ and \d+$")
        used = re.search(r"^used (\d+) and (\d+)$", program.output, re.MULTILINE).groups()
        if max(map(int, used)) > MOST_STACK_BYTES:
            raise Failure("the threads used %s and %s bytes of their stacks" % used)


def no_descriptor_has_the_number_of_a_closed_standard_stream():
    with Emulator() as emulator:
        run(emulator, [build("standard_closed")])


def an_idle_host_sleeps_where_epoll_pwait2_is_refused():
    prefix = sandbox(errno.EPERM, "epoll_pwait2")
    with Emulator() as emulator:
        program = emulator.start("guest", free_addresses(1)[0],
                                 ["sh", "-c", "echo started; exec sleep %d" % LIMIT_S],
                                 prefix=prefix)
        if not program.wait_for_text("started", LIMIT_S):
            raise Failure("the program did not begin\n" + program.describe())
        host = emulator.host("guest")["pid"]
        before = work_done_by(host)
        # There is no event to wait for, because the test is that none wakes up the host. A host that
        # polls each millisecond would wake up 500 times.
        time.sleep(0.5)
        switches, ticks = (after - then for after, then in zip(work_done_by(host), before))
        # The end of the request above wakes the host, too.
        if switches > 5 or ticks > 1:
            raise Failure("the idle host woke up %d times and ran for %d0 ms" % (switches, ticks))


def a_held_copy_changes_no_deregistered_memory_on_one_host():
    with Emulator() as emulator:
        run(emulator, [build("held_copy")]).expect(r"^the memory did not change$")


def a_held_copy_changes_no_deregistered_memory_of_another_host():
    with Emulator() as emulator:
        addresses = free_addresses(2)
        other = emulator.start("sender", addresses[1],
                               ["sh", "-c", "echo started; exec sleep %d" % LIMIT_S])
        if not other.wait_for_text("started", LIMIT_S):
            raise Failure("the sender's host did not begin\n" + other.describe())
        program = emulator.start("guest", addresses[0], [build("held_copy"), "sender"])
        if program.wait(LIMIT_S) != 0:
            raise Failure("the program failed\n" + program.describe())
        program.expect(r"^the memory did not change$")


def a_pipe_is_no_trace_file():
    pipe = os.path.join(OUTPUT, "pipe")
    os.mkfifo(pipe)
    for option in ("--trace", "--pcap"):
        program, status = run_in([], ["true"], [option, pipe])
        if status != 125:
            raise Failure("not refused\n" + program.describe())
        program.expect(r"pipe: it is a pipe.*give %s a file" % option)


def a_host_that_never_gets_ready_is_named_by_its_lock():
    with Emulator() as emulator:
        with open(os.path.join(emulator.directory, "guest.lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            program = emulator.start("guest", free_addresses(1)[0], ["true"])
            program.wait(LIMIT_S)
        program.expect(r"is being started by another process.*fuser .*guest\.lock")


def a_region_that_never_becomes_present_stops_its_own_thread_alone():
    program, status = run_in([], [build("never_present")])
    if status == 77:
        raise emulated.Skip("no FUSE file system for a user: " + program.output)
    program.expect(r"^the host answers$")


def bytes_read_for_registrations(prefix=()):
    """Returns how many bytes the program and the host read during 50 registrations in a process
    with 20,000 mappings."""
    with Emulator() as emulator:
        program = emulator.start("guest", free_addresses(1)[0], [*prefix, build("mappings")])
        if not program.wait_for_text("mapped\n", LIMIT_S):
            raise Failure("the program did not get there\n" + program.describe())
        path = "/proc/%d/io" % emulator.host("guest")["pid"]
        before = rchar(path)
        program.process.stdin.write(b"\n")
        program.process.stdin.flush()
        if not program.wait_for_text(" bytes read\n", LIMIT_S):
            raise Failure("the program did not register\n" + program.describe())
        by_host = rchar(path) - before
        by_program = int(re.search(r"registrations: (\d+) bytes", program.output).group(1))
        program.process.stdin.close()
        if program.wait(LIMIT_S) != 0:
            raise Failure("the program failed\n" + program.describe())
        return by_program, by_host


def rchar(path):
    """Returns how many bytes a process has read, of files in /proc as well (proc(5))."""
    try:
        with open(path) as io:
            return int(io.readline().split()[1])
    except OSError as error:
        raise emulated.Skip("this kernel counts no reads: %s" % error)


def a_registration_does_not_read_the_list_of_mappings():
    """A list of 20,000 mappings has about 1 MB, so 50 readings of it have 50 MB."""
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if tuple(map(int, release.groups())) < (5, 14):
        raise emulated.Skip("before Linux 5.14 the host reads the list")
    read = bytes_read_for_registrations()
    if max(read) > 1_000_000:
        raise Failure("the program and the host read %d and %d bytes" % read)
    # Without MADV_POPULATE_READ the host does read the list, and the count shows this.
    read = bytes_read_for_registrations(sandbox(errno.EINVAL, "madvise"))
    if max(read) < 1_000_000:
        raise Failure("the program and the host read %d and %d bytes only" % read)


def main():
    try:
        return emulated.run_cases("guest", [(f.__name__, f) for f in (
            a_full_descriptor_table_is_emfile_and_leaves_nothing_at_the_host,
            the_hosts_death_reaches_a_program_with_large_thread_local_storage,
            what_needs_the_libraries_thread_fails_without_it,
            a_program_that_closes_the_descriptors_keeps_its_files,
            a_forked_child_that_closes_the_descriptors_keeps_its_files,
            fork_does_not_wait_for_a_host, fork_does_not_wait_for_a_call_of_another_thread,
            children_create_ids_while_other_threads_do,
            a_childs_posts_miss_the_queues_that_replace_its_parents,
            calls_need_little_stack, no_descriptor_has_the_number_of_a_closed_standard_stream,
            a_program_of_run_gets_no_other_host_when_its_host_has_ended,
            a_program_hears_where_its_ended_hosts_log_is,
            a_program_that_clears_its_environment_stays_on_its_host,
            librdmacm_stays_while_it_looks_a_name_up,
            an_embedded_host_serves_libraries_that_python_loads,
            threads_are_clean_by_themselves, threads_are_clean_under_thread_sanitizer,
            threads_are_clean_under_address_sanitizer, threads_are_clean_under_valgrind,
            threads_run_under_strace, threads_run_under_gdb,
            destructors_and_atexit_handlers_use_devices,
            data_moves_where_process_vm_calls_are_refused,
            pages_keep_their_rights_with_and_without_process_vm_calls,
            an_embedded_host_serves_a_program_whose_library_links_it,
            data_moves_on_an_embedded_host_where_process_vm_calls_are_refused,
            run_says_why_where_memory_cannot_be_reached_at_all,
            hosts_start_where_close_range_is_refused,
            an_idle_host_sleeps_where_epoll_pwait2_is_refused,
            a_held_copy_changes_no_deregistered_memory_on_one_host,
            a_held_copy_changes_no_deregistered_memory_of_another_host,
            a_pipe_is_no_trace_file,
            a_host_that_never_gets_ready_is_named_by_its_lock,
            a_registration_does_not_read_the_list_of_mappings,
            a_region_that_never_becomes_present_stops_its_own_thread_alone,
            *calls.CASES)], at_once=2)
    finally:
        shutil.rmtree(OUTPUT, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
