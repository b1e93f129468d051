"""Programs that look for a device under /sys and /dev find their host's: Debian's UCX, Open MPI over
UCX, libfabric, hwloc and ibstat, unmodified. docs/filesystem.md has the rules.

usage: discovery.py FILE_OF_THE_INSTALLED_TREE...
"""

import functools
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import emulated  # noqa: E402
from emulated import Emulator, Failure, Skip, free_addresses, need  # noqa: E402

TREE = os.path.abspath(sys.argv[1].partition("/tree/")[0] + "/tree")
LIMIT_S = 120  # programs that poll without a pause are slow beside others
COUNTERS = "/sys/class/infiniband/%s/ports/1/hw_counters/"
# UCX takes the kind of a UD packet from a field that only mlx5 fills (docs/filesystem.md).
UCX = {"UCX_TLS": "rc_verbs,ud_verbs,self", "UCX_NET_DEVICES": "rxe0:1",
       "UCX_UD_VERBS_ETH_DGID_CHECK": "n"}
MPI = dict(UCX, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
           OMPI_MCA_pml="ucx", OMPI_MCA_osc="ucx", OMPI_MCA_btl="^openib,tcp,vader")


def check(holds, text):
    if not holds:
        raise Failure(text)


class Hosts(Emulator):
    """Two hosts with addresses of their own. `door`: of --sysfs."""

    def __init__(self, profile="rxe", device="rxe0", door="fuse"):
        super().__init__()
        self.door = ("--sysfs", door)
        self.here, self.there = free_addresses(2)
        self.profile, self.device = profile, device

    def begin(self, *argv, options=None, env=None, host="h", prefix=()):
        options = self.door if options is None else options
        return self.start(host, self.here if host == "h" else self.there, list(argv),
                          ["--profile", self.profile, *options], env, prefix)

    def hold(self, *hosts):
        """Keeps hosts, and with them their counters, until the end."""
        for host in hosts:
            holder = self.begin("sh", "-c", "echo up; exec cat", host=host)
            if not holder.wait_for_text("up\n", 30):
                skip_if_refused(holder.output)
                raise Failure(holder.describe())


def skip_if_refused(said):
    if "cannot show the devices" in said and "unshare" in said:
        raise Skip("no private mount is possible here: " + said)


def run(emulator, *argv, status=0, **more):
    """Runs a program on a host and returns its output."""
    program = emulator.begin(*argv, **more)
    ended = program.wait(LIMIT_S)
    if status == 0:
        skip_if_refused(program.output)
    check(ended == status, program.describe())
    return program.output


def counter(emulator, name):
    return int(run(emulator, "cat", COUNTERS % emulator.device + name).splitlines()[-1])


def shell(emulator, script, **more):
    return run(emulator, "bash", "-ec", script, **more)


# ---- the files


def a_program_finds_its_device_and_keeps_what_it_had(door="fuse"):
    with Hosts(door=door) as emulator:
        said = shell(emulator, """
            test -c /dev/infiniband/uverbs0; test -c /dev/infiniband/rdma_cm
            test -w /dev/infiniband/uverbs0
            cat /sys/class/infiniband/rxe0/ports/1/state
            cat /sys/class/net/lo/operstate > /dev/null; echo x > /dev/null
            f=$(mktemp -p /dev/shm); rm $f
            realpath /sys/class/infiniband/rxe0; id -u; pwd
            ! cat /sys/class/infiniband/rxe0/ports/1/gid_attrs/types/9
            """)
        for word in ("4: ACTIVE", "/sys/devices/virtual/infiniband/rxe0", "Invalid argument",
                     "\n%d\n%s\n" % (os.getuid(), os.getcwd())):
            check(word in said, "%r is not in %s" % (word, said))


def without_the_files_there_is_no_device():
    with Hosts() as emulator:
        shell(emulator, "! test -e /dev/infiniband/uverbs0", options=("--sysfs", "off"))


def a_removed_device_has_no_files(door="fuse"):
    with Hosts(door=door) as emulator:
        program = emulator.begin("bash", "-ec", """
            test -e /sys/class/infiniband/rxe0; echo there; read
            ! test -e /sys/class/infiniband/rxe0; ! test -e /dev/infiniband/uverbs0; echo gone; read
            test -e /sys/class/infiniband/rxe0/ports; test -c /dev/infiniband/uverbs1
            """)
        if not program.wait_for_text("there\n", 30):
            skip_if_refused(program.output)
            raise Failure(program.describe())
        for command, said in (("remove", "gone\n"), ("add", "")):
            check(emulator.rdmaemu("device", command, "rxe0", "--host", "h").returncode == 0,
                  "device " + command)
            program.process.stdin.write(b"\n")
            program.process.stdin.flush()
            check(program.wait_for_text(said, 30), program.describe())
        check(program.wait(30) == 0, program.describe())


def where_mounts_are_refused_the_files_are_copies():
    with Hosts() as emulator:
        refused = ("unshare", "-Ur", "sh", "-c",
                   'echo 0 > /proc/sys/user/max_mnt_namespaces; exec "$@"', "sh")
        said = run(emulator, "true", status=125, prefix=refused)
        check("cannot show the devices under /sys and /dev: unshare:" in said, said)
        said = run(emulator, "ibstat", "-l", options=(), prefix=refused)
        check(said.splitlines()[-1:] == ["rxe0"], said)


# What the preload door does beyond the mounts: relative paths, listings, links, the current
# directory, and what the program may not see of the copies.
IN_THE_TREE = r"""
import ctypes, glob, os, subprocess
C = "/sys/class/infiniband"
os.chdir(C + "/rxe0/ports/1")
assert os.getcwd() == "/sys/devices/virtual/infiniband/rxe0/ports/1", os.getcwd()
assert open("state").read() == "4: ACTIVE\n"
assert open("../../node_type").read() == "1: CA\n"
assert open("../../../../net/lo/type").read() == "772\n"  # the machine's
assert subprocess.run(["cat", "state"], capture_output=True, text=True).stdout == "4: ACTIVE\n"
assert subprocess.run(["pwd"], capture_output=True, text=True).stdout == os.getcwd() + "\n"
d = os.open("gids", os.O_RDONLY)
assert os.readlink("/proc/self/fd/%d" % d).startswith("/sys/devices/virtual/infiniband/rxe0")
assert sorted(os.listdir(d))[0] == "0"
assert open(os.open("0", os.O_RDONLY, dir_fd=d)).read().startswith("fe80:")
os.chdir("/")
assert glob.glob(C + "/*/ports/*/rate") == [C + "/rxe0/ports/1/rate"]
assert os.path.realpath(C + "/rxe0/subsystem") == C, os.path.realpath(C + "/rxe0/subsystem")
assert os.path.samefile(C + "/rxe0", "/sys/devices/virtual/infiniband/rxe0")
for call in (lambda: open(C + "/rxe0/node_desc", "w"), lambda: os.open("/dev/infiniband/rdma_cm", 2)):
    try:
        call()
        assert False
    except PermissionError:
        pass
try:
    open(C + "/rxe0/none")
    assert False
except FileNotFoundError:
    pass
os.environ.clear()
assert os.path.isdir(C + "/rxe0/ports/1/hw_counters")
print("good")
"""


def programs_see_no_path_of_the_copies():
    with Hosts(door="preload") as emulator:
        said = run(emulator, sys.executable, "-c", IN_THE_TREE)
        check(said.splitlines()[-1:] == ["good"], said)


READERS = r"""
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
static void* Read(void* unused) {
  for (int i = 0; i < 50; i++) {
    char line[32] = "";
    FILE* file = fopen("/sys/class/infiniband/rxe0/node_type", "r");
    if (file == 0 || fgets(line, sizeof line, file) == 0) return file;
    fclose(file);
    int fd = open("/dev/null", O_RDONLY);
    close(fd);
  }
  return unused;
}
int main(void) {
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, Read, 0);
  for (int i = 0; i < 4; i++) {
    void* failed;
    pthread_join(threads[i], &failed);
    if (failed != 0) return 1;
  }
  struct stat found;
#ifdef PLAIN /* a sanitizer looks at the pointer first */
  const char* volatile nothing = (const char*)8;
  if (stat(nothing, &found) != -1 || errno != EFAULT) return 2;
#endif
  if (stat("", &found) != -1 || errno != ENOENT) return 2;
  char byte;
  if (readlink("/sys/class/infiniband/rxe0", &byte, 0) != -1 || errno != EINVAL) return 3;
  if (readlink("/proc/self/exe", &byte, 1) != 1) return 4;
  if (fopen("/sys/class/infiniband/rxe0/new", "w") != 0 || errno != EACCES) return 5;
  puts("good");
  return 0;
}
"""


def programs_with_threads_and_sanitizers_run_with_the_copies():
    need("gcc")
    with Hosts(door="preload") as emulator:
        for how in ("-DPLAIN", "-fsanitize=address", "-fsanitize=thread"):
            made = os.path.join(emulator.directory, "program" + how)
            subprocess.run(["gcc", how, "-x", "c", "-o", made, "-"], check=True, text=True,
                           input=READERS)
            check("good" in run(emulator, made), how)


def programs_that_outlive_their_run_see_the_machines_files():
    with Hosts(door="preload") as emulator:
        emulator.hold("h")
        ask, answer = (os.path.join(emulator.directory, name) for name in ("ask", "answer"))
        os.mkfifo(ask)
        os.mkfifo(answer)
        run(emulator, "bash", "-ec",
            "(read line < $0; ls /sys/class/infiniband > $1 2>&1) > /dev/null 2>&1 &", ask, answer)
        with open(ask, "w") as fifo:
            fifo.write("the run has ended\n")
        with open(answer) as fifo:
            check("rxe0" not in fifo.read(), "the copies are still there")


def mounted():
    """The mounts of this process's namespace. Others may have made theirs before the test."""
    with open("/proc/self/mounts") as mounts:
        return {line for line in mounts if "fuse.rdmaemu" in line}


def terminals_and_the_current_directory(door="fuse"):
    """A program opens pseudo-terminals, and finds devices by relative paths from above."""
    with Hosts(door=door) as emulator:
        said = run(emulator, sys.executable, "-c", """if True:
            import os, pty
            main, other = os.openpty()
            assert os.ttyname(other).startswith("/dev/pts/"), os.ttyname(other)
            assert pty.spawn(["true"]) == 0
            for here, path in (("/sys/class", "infiniband/rxe0/node_type"),
                               ("/", "sys/class/infiniband/rxe0/node_type"),
                               ("/dev", "../sys/class/./infiniband/rxe0/node_type")):
                os.chdir(here)
                assert os.getcwd() == here
                assert open(path).read() == "1: CA\\n", path
            os.chdir("/dev")
            assert os.path.exists("infiniband/uverbs0")
            assert os.listdir("/sys/class/infiniband/..")
            top = os.open("/", os.O_RDONLY)
            assert os.stat("dev/infiniband/uverbs0", dir_fd=top).st_rdev == os.makedev(231, 192)
            os.statvfs("/sys/class/infiniband/rxe0")
            print("good")
            """)
        check(said.splitlines()[-1:] == ["good"], said)


def nothing_is_left_behind(door="fuse"):
    before = mounted()
    with Hosts(door=door) as emulator:
        said = run(emulator, "sh", "-c", "echo ${RDMAEMU_FILES:-/none}")
        check(not os.path.exists(said.split()[-1]), "copies remain in " + said)
        left = subprocess.run(["ps", "-eo", "stat=,args="], capture_output=True, text=True).stdout
        check(not [line for line in left.splitlines()
                   if emulator.directory in line and "rdmaemu-files" in line], left)
        check(mounted() <= before, f"mounts remain: {mounted() - before}")


def an_ordinary_user_finds_the_device():
    if os.getuid() != 0:
        return
    need("setpriv")
    with Hosts() as emulator, tempfile.TemporaryDirectory(dir="/tmp") as directory:
        tree = os.path.join(directory, "tree")
        shutil.copytree(TREE, tree)
        home = os.path.join(directory, "home")
        os.mkdir(home)
        subprocess.run(["chmod", "-R", "a+rX", directory], check=True)
        try:
            os.chown(home, 65534, 65534)
        except OSError:
            raise Skip("in this sandbox there is one user only")
        result = subprocess.run(
            ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups",
             os.path.join(tree, "bin", "rdmaemu"), "run", "--private", "--sysfs", "fuse", "--",
             "bash", "-ec", """
             test -c /dev/infiniband/uverbs0; id -u; id -g; cd; pwd
             python3 -c "import os; os.openpty()"; ! touch /dev/new /sys/class/new 2> /dev/null
             rping -s -C 2 & until rping -c -a 127.0.0.1 -C 2; do :; done; wait
             cat %srdma_sends""" % (COUNTERS % "rxe0")],
            cwd=home, env=dict(emulator.env, RDMAEMU_DIR=home, HOME=home), text=True,
            capture_output=True, timeout=LIMIT_S)
        skip_if_refused(result.stderr)
        check(result.returncode == 0, result.stdout + result.stderr)
        check(result.stdout.startswith("65534\n65534\n" + home), result.stdout)
        check(int(result.stdout.split()[-1]) > 0, result.stdout)
        # A directory that the user is in, but cannot enter by its path.
        os.chmod(directory, 0o711)
        closed = os.path.join(directory, "closed", "inner")
        os.makedirs(closed)
        os.chmod(os.path.dirname(closed), 0o700)
        result = subprocess.run(
            ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups",
             os.path.join(tree, "bin", "rdmaemu"), "run", "--private", "--", "cat",
             "/sys/class/infiniband/rxe0/node_type"],
            cwd=closed, env=dict(emulator.env, RDMAEMU_DIR=home, HOME=home), text=True,
            capture_output=True, timeout=LIMIT_S)
        check(result.returncode == 0 and result.stdout == "1: CA\n", result.stdout + result.stderr)


# ---- Debian's programs


def ibstat_shows_the_device(door="fuse"):
    need("ibstat")
    with Hosts(door=door) as emulator:
        said = run(emulator, "ibstat")
        for line in ("CA 'rxe0'", "State: Active", "Link layer: Ethernet"):
            check(line in said, said)


def lstopo_shows_the_device(door="fuse"):
    need("lstopo-no-graphics")
    with Hosts(door=door) as emulator:
        # hwloc leaves virtual devices out, as those of the kernel's rdma_rxe.
        said = run(emulator, "lstopo-no-graphics", "--whole-io",
                   env={"HWLOC_VIRTUAL_LINUX_OSDEV": "1"})
        check('OpenFabrics "rxe0"' in said, said)


def ucx_finds_the_device(door="fuse"):
    need("ucx_info")
    with Hosts(door=door) as emulator:
        said = run(emulator, "ucx_info", "-d")
        for transport in ("rc_verbs", "ud_verbs"):
            check("Transport: " + transport in said, said)
        check("rc_verbs" not in run(emulator, "ucx_info", "-d", options=("--sysfs", "off"), host="i"),
              "ucx_info finds a device without its files")


def pair_of_ucx_perftest(env, **machine):
    need("ucx_perftest")
    port = emulated.free_tcp_port()
    with Hosts(**machine) as emulator:
        test = ["ucx_perftest", "-t", "tag_lat", "-n", "200", "-p", str(port)]
        emulator.hold("h")
        server = emulator.begin(*test, env=env)
        emulated.wait_for_tcp_listener(port, server)
        client = emulator.begin(*test, "127.0.0.1", env=env)
        check(client.wait(LIMIT_S) == 0 and server.wait(LIMIT_S) == 0,
              client.describe() + server.describe())
        client.expect(r"^Final: ")
        sends = counter(emulator, "rdma_sends")
        check(sends >= 400, "the host's counters show %d messages" % sends)


def ucx_sends_over_rc(door="fuse"):
    pair_of_ucx_perftest(UCX, door=door)


def ucx_sends_over_ud():
    pair_of_ucx_perftest(dict(UCX, UCX_TLS="ud_verbs,self"))


def ucx_needs_no_setting_on_a_connectx():
    pair_of_ucx_perftest({"UCX_TLS": "ud_verbs,self", "UCX_NET_DEVICES": "mlx5_0:1"},
                         profile="mlx5-roce", device="mlx5_0")


MPI_PROGRAM = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
/* Sends messages of 1 byte to 1 MiB from rank 0 to rank 1, which compares each byte. */
int main(int argc, char** argv) {
  int rank, sum = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int bytes = 1; bytes <= 1 << 20; bytes *= 4) {
    unsigned char* data = calloc(1, bytes);
    if (rank == 0) for (int i = 0; i < bytes; i++) data[i] = i * 7 + bytes;
    if (rank == 0) MPI_Send(data, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
    if (rank == 1) {
      MPI_Recv(data, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      for (int i = 0; i < bytes; i++)
        if (data[i] != (unsigned char)(i * 7 + bytes)) MPI_Abort(MPI_COMM_WORLD, 1);
    }
    free(data);
  }
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("the payload was right, the sum is %d\n", sum);
  MPI_Finalize();
}
"""


def mpi_program(directory):
    need("mpirun")
    need("mpicc")
    source, made = os.path.join(directory, "mpi.c"), os.path.join(directory, "mpi")
    with open(source, "w") as file:
        file.write(MPI_PROGRAM)
    subprocess.run(["mpicc", "-o", made, source], check=True)
    return made


MPIRUN = ["mpirun", "-n", "2", "--oversubscribe"]


def open_mpi_sends_on_one_host(door="fuse"):
    with Hosts(door=door) as emulator:
        made = mpi_program(emulator.directory)
        emulator.hold("h")
        said = run(emulator, *MPIRUN, made, env=MPI)
        check("the payload was right, the sum is 1" in said, said)
        check(counter(emulator, "rdma_sends") > 10, "no RDMA carried it")


def open_mpi_sends_between_two_hosts():
    with Hosts() as emulator:
        made = mpi_program(emulator.directory)
        emulator.hold("h", "i")
        each = ('hosts=(h i); %s run --sysfs fuse --host ${hosts[$OMPI_COMM_WORLD_RANK]} --'
                " sh -c '%s && cat %ssent_pkts'" % (emulated.RDMAEMU, made, COUNTERS % "rxe0"))
        result = subprocess.run([*MPIRUN, "bash", "-ec", each], env=dict(emulator.env, **MPI),
                                text=True, capture_output=True, timeout=LIMIT_S)
        skip_if_refused(result.stderr)
        check(result.returncode == 0, result.stdout + result.stderr)
        check("the payload was right, the sum is 1" in result.stdout, result.stdout)
        packets = [int(n) for n in re.findall(r"^\d+$", result.stdout, re.MULTILINE)]
        check(len(packets) == 2 and min(packets) > 10, result.stdout)


def libfabric_finds_the_device(door="fuse"):
    need("fi_info")
    with Hosts(door=door) as emulator:
        said = run(emulator, "fi_info", "-p", "verbs")
        check("domain: rxe0" in said, said)


def pair_of_fi_pingpong(provider, endpoint, profile, device):
    need("fi_pingpong")
    with Hosts() as emulator:
        # libfabric leaves out addresses of the loopback interface.
        made = subprocess.run(["unshare", "-rn", "bash", "-ec", """
            ip link set lo up; ip link add d0 type veth peer name d1
            ip address add 10.77.0.1/24 dev d0; ip link set d0 up; ip link set d1 up
            exec "$1" run --address 10.77.0.1 --sysfs fuse --profile "$2" -- bash -ec '
              pingpong() { fi_pingpong -p "$1" -e "$2" -I 10 "${@:3}"; }
              pingpong "$1" "$2" > server & server=$!
              until pingpong "$1" "$2" 10.77.0.1 2> /dev/null; do
                kill -0 $server || exit 1
              done
              wait; cat "$3"' sh "$3" "$4" "$5" """, "sh", emulated.RDMAEMU, profile, provider,
                               endpoint, COUNTERS % device + "rdma_sends"],
            env=emulator.env, cwd=emulator.directory, text=True, capture_output=True, timeout=LIMIT_S)
        skip_if_refused(made.stderr)
        check(made.returncode == 0 and re.search(r"^1m +10 ", made.stdout, re.MULTILINE) and
              int(made.stdout.split()[-1]) > 100, made.stdout + made.stderr)


def libfabric_sends_messages():
    pair_of_fi_pingpong("verbs", "msg", "rxe", "rxe0")


def libfabric_sends_datagrams_of_any_size():
    pair_of_fi_pingpong("verbs;ofi_rxm", "rdm", "mlx5-roce", "mlx5_0")


def device_nodes_are_character_devices_for_every_language(door="fuse"):
    with Hosts(door=door) as emulator:
        said = run(emulator, sys.executable, "-c",
                   "import os; s = os.stat('/dev/infiniband/uverbs0'); print(oct(s.st_mode),"
                   " os.major(s.st_rdev), os.minor(s.st_rdev), os.listdir('/sys/class/infiniband'))")
        check("%o 231 192 ['rxe0']" % (stat.S_IFCHR | 0o666) in said.replace("0o", ""), said)


# These run with both doors.
FILES = [a_program_finds_its_device_and_keeps_what_it_had, a_removed_device_has_no_files,
         device_nodes_are_character_devices_for_every_language,
         terminals_and_the_current_directory, nothing_is_left_behind,
         ibstat_shows_the_device, lstopo_shows_the_device, ucx_finds_the_device, ucx_sends_over_rc,
         open_mpi_sends_on_one_host, libfabric_finds_the_device]
CASES = [without_the_files_there_is_no_device, where_mounts_are_refused_the_files_are_copies,
         programs_see_no_path_of_the_copies, programs_with_threads_and_sanitizers_run_with_the_copies,
         programs_that_outlive_their_run_see_the_machines_files,
         an_ordinary_user_finds_the_device, ucx_sends_over_ud, ucx_needs_no_setting_on_a_connectx,
         open_mpi_sends_between_two_hosts,
         libfabric_sends_messages, libfabric_sends_datagrams_of_any_size]

if __name__ == "__main__":
    sys.exit(emulated.run_cases("discovery", [
        *((case.__name__, case) for case in FILES + CASES),
        *((case.__name__ + "_by_copies", functools.partial(case, door="preload")) for case in FILES)], 2))
