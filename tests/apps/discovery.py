"""Programs that look for a device under /sys and /dev find their host's: Debian's UCX, Open MPI over
UCX, libfabric, hwloc and ibstat, unmodified. docs/filesystem.md has the rules.

usage: discovery.py FILE_OF_THE_INSTALLED_TREE...
"""

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
    """Two hosts with addresses of their own."""

    def __init__(self, profile="rxe", device="rxe0"):
        super().__init__()
        self.here, self.there = free_addresses(2)
        self.profile, self.device = profile, device

    def begin(self, *argv, options=("--sysfs", "fuse"), env=None, host="h", prefix=()):
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
    if "cannot show the devices" in said:
        raise Skip("no private mount is possible here: " + said)


def run(emulator, *argv, status=0, **more):
    """Runs a program on a host and returns its output."""
    program = emulator.begin(*argv, **more)
    ended = program.wait(60)
    if status == 0:
        skip_if_refused(program.output)
    check(ended == status, program.describe())
    return program.output


def counter(emulator, name):
    return int(run(emulator, "cat", COUNTERS % emulator.device + name).splitlines()[-1])


def shell(emulator, script, **more):
    return run(emulator, "bash", "-ec", script, **more)


# ---- the files


def a_program_finds_its_device_and_keeps_what_it_had():
    with Hosts() as emulator:
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


def a_removed_device_has_no_files():
    with Hosts() as emulator:
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


def what_cannot_be_mounted_is_an_error_on_request_only():
    with Hosts() as emulator:
        refused = ("unshare", "-Ur", "sh", "-c",
                   'echo 0 > /proc/sys/user/max_mnt_namespaces; exec "$@"', "sh")
        said = run(emulator, "true", status=125, prefix=refused)
        check("cannot show the devices under /sys and /dev: unshare:" in said, said)
        run(emulator, "true", options=(), prefix=refused)


def mounted():
    """The mounts of this process's namespace. Others may have made theirs before the test."""
    with open("/proc/self/mounts") as mounts:
        return {line for line in mounts if "fuse.rdmaemu" in line}


def nothing_is_left_behind():
    before = mounted()
    with Hosts() as emulator:
        run(emulator, "true")
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
             rping -s -C 2 & until rping -c -a 127.0.0.1 -C 2; do :; done; wait
             cat %srdma_sends""" % (COUNTERS % "rxe0")],
            cwd=home, env=dict(emulator.env, RDMAEMU_DIR=home, HOME=home), text=True,
            capture_output=True, timeout=60)
        skip_if_refused(result.stderr)
        check(result.returncode == 0, result.stdout + result.stderr)
        check(result.stdout.startswith("65534\n65534\n" + home), result.stdout)
        check(int(result.stdout.split()[-1]) > 0, result.stdout)


# ---- Debian's programs


def ibstat_shows_the_device():
    need("ibstat")
    with Hosts() as emulator:
        said = run(emulator, "ibstat")
        for line in ("CA 'rxe0'", "State: Active", "Link layer: Ethernet"):
            check(line in said, said)


def lstopo_shows_the_device():
    need("lstopo-no-graphics")
    with Hosts() as emulator:
        # hwloc leaves virtual devices out, as those of the kernel's rdma_rxe.
        said = run(emulator, "lstopo-no-graphics", "--whole-io",
                   env={"HWLOC_VIRTUAL_LINUX_OSDEV": "1"})
        check('OpenFabrics "rxe0"' in said, said)


def ucx_finds_the_device():
    need("ucx_info")
    with Hosts() as emulator:
        said = run(emulator, "ucx_info", "-d")
        for transport in ("rc_verbs", "ud_verbs"):
            check("Transport: " + transport in said, said)
        check("rc_verbs" not in run(emulator, "ucx_info", "-d", options=("--sysfs", "off"), host="i"),
              "ucx_info finds a device without its files")


def pair_of_ucx_perftest(env, **machine):
    need("ucx_perftest")
    port = emulated.free_tcp_port()
    with Hosts(**machine) as emulator:
        test = ["ucx_perftest", "-t", "tag_lat", "-n", "1000", "-p", str(port)]
        emulator.hold("h")
        server = emulator.begin(*test, env=env)
        emulated.wait_for_tcp_listener(port, server)
        client = emulator.begin(*test, "127.0.0.1", env=env)
        check(client.wait(60) == 0 and server.wait(60) == 0,
              client.describe() + server.describe())
        client.expect(r"^Final: ")
        sends = counter(emulator, "rdma_sends")
        check(sends >= 2000, "the host's counters show %d messages" % sends)


def ucx_sends_over_rc():
    pair_of_ucx_perftest(UCX)


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


def open_mpi_sends_on_one_host():
    with Hosts() as emulator:
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
                                text=True, capture_output=True, timeout=60)
        skip_if_refused(result.stderr)
        check(result.returncode == 0, result.stdout + result.stderr)
        check("the payload was right, the sum is 1" in result.stdout, result.stdout)
        packets = [int(n) for n in re.findall(r"^\d+$", result.stdout, re.MULTILINE)]
        check(len(packets) == 2 and min(packets) > 10, result.stdout)


def libfabric_finds_the_device():
    need("fi_info")
    with Hosts() as emulator:
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
            env=emulator.env, cwd=emulator.directory, text=True, capture_output=True, timeout=60)
        skip_if_refused(made.stderr)
        check(made.returncode == 0 and re.search(r"^1m +10 ", made.stdout, re.MULTILINE) and
              int(made.stdout.split()[-1]) > 100, made.stdout + made.stderr)


def libfabric_sends_messages():
    pair_of_fi_pingpong("verbs", "msg", "rxe", "rxe0")


def libfabric_sends_datagrams_of_any_size():
    pair_of_fi_pingpong("verbs;ofi_rxm", "rdm", "mlx5-roce", "mlx5_0")


def device_nodes_are_character_devices_for_every_language():
    with Hosts() as emulator:
        said = run(emulator, sys.executable, "-c",
                   "import os; s = os.stat('/dev/infiniband/uverbs0'); print(oct(s.st_mode),"
                   " os.major(s.st_rdev), os.minor(s.st_rdev), os.listdir('/sys/class/infiniband'))")
        check("%o 231 192 ['rxe0']" % (stat.S_IFCHR | 0o666) in said.replace("0o", ""), said)


CASES = [a_program_finds_its_device_and_keeps_what_it_had, without_the_files_there_is_no_device,
         a_removed_device_has_no_files, what_cannot_be_mounted_is_an_error_on_request_only,
         nothing_is_left_behind, an_ordinary_user_finds_the_device,
         device_nodes_are_character_devices_for_every_language, ibstat_shows_the_device,
         lstopo_shows_the_device, ucx_finds_the_device, ucx_sends_over_rc, ucx_sends_over_ud,
         ucx_needs_no_setting_on_a_connectx,
         open_mpi_sends_on_one_host, open_mpi_sends_between_two_hosts, libfabric_finds_the_device,
         libfabric_sends_messages, libfabric_sends_datagrams_of_any_size]

if __name__ == "__main__":
    sys.exit(emulated.run_cases("discovery", [(case.__name__, case) for case in CASES], 2))
