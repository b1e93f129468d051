"""python3 -m rdmaemu, and the errors of a Python that was started without it."""

import os
import subprocess
import sys

import rdmaemu

SELECTS = """
import rdmaemu, select, os
from pyverbs.device import Context
with rdmaemu.open(require_preload=%s) as host:
    with host.fault(at="time", at_ms=5000, port="down") as fault:
        select.select([], [], [], 0.01)
    print("preloaded:", rdmaemu.is_preloaded())
"""


def python(*arguments, **variables):
    env = {name: value for name, value in os.environ.items()
           if name not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}
    env.update(variables)
    return subprocess.run([sys.executable, *arguments], env=env, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)


def test_this_python_is_preloaded():
    assert rdmaemu.is_preloaded()


def test_the_launcher_preloads():
    done = python("-m", "rdmaemu", "-c", SELECTS % True)
    assert (done.returncode, done.stdout) == (0, "preloaded: True\n")


def test_the_launcher_becomes_the_program(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import sys; print(sys.argv[1:]); sys.exit(7)")
    done = python("-m", "rdmaemu", str(script), "-m", "--help")
    assert (done.returncode, done.stdout) == (7, "['-m', '--help']\n")


def test_the_environment_is_printed_for_a_shell():
    done = python("-m", "rdmaemu", "env", LD_PRELOAD="libdl.so.2", LD_LIBRARY_PATH="/a b")
    directory = str(rdmaemu.library_directory())
    assert done.stdout == ("export LD_LIBRARY_PATH='%s:/a b'\nexport LD_PRELOAD=%s/librdmaemu.so.1:"
                           "libdl.so.2\n" % (directory, directory))


def test_without_the_preload_a_host_is_refused_and_the_launcher_named():
    done = python("-c", SELECTS % True)
    assert done.returncode == 1
    assert "python3 -m rdmaemu pytest" in done.stdout and "(ENOTSUP)" in done.stdout


def test_without_the_preload_calls_of_rdma_run_the_host():
    done = python("-c", SELECTS % False)
    assert (done.returncode, done.stdout) == (0, "preloaded: False\n")


def test_a_driver_thread_runs_the_host_without_the_preload():
    done = python("-c", """
import rdmaemu, time
with rdmaemu.open() as host:
    with host.fault(at="time", at_ms=60000, port="down") as fault:
        while fault.fired == 0:
            time.sleep(0.01)
    print(host.now() >= 60, rdmaemu.is_preloaded())
""", RDMAEMU_DRIVER_THREAD="1")
    assert (done.returncode, done.stdout) == (0, "True False\n")


def test_program_time_needs_the_preload():
    done = python("-c", "import rdmaemu; rdmaemu.open(require_preload=False, program_time=True)")
    assert done.returncode == 1
    assert "its clocks would not show the host's time" in done.stdout


def test_pyverbs_before_rdmaemu_is_refused():
    done = python("-c", "import pyverbs.device, rdmaemu; rdmaemu.open(require_preload=False)")
    assert done.returncode == 1
    assert "import rdmaemu before pyverbs" in done.stdout


def test_a_missing_library_is_named():
    done = python("-c", "import rdmaemu", RDMAEMU_LIBRARY_DIR="/nonexistent")
    assert done.returncode == 1
    assert "/nonexistent/libibverbs.so.1" in done.stdout and "rdmaemu install" in done.stdout


def test_the_system_backend_loads_none_of_our_libraries():
    done = python("-c", "import rdmaemu; print([line for line in open('/proc/self/maps') "
                  "if 'ibverbs' in line or 'rdmaemu' in line])", RDMAEMU_BACKEND="system")
    assert (done.returncode, done.stdout) == (0, "[]\n")


def test_a_process_without_a_host_process_cannot_attach():
    done = python("-c", "import rdmaemu; rdmaemu.attach()", RDMAEMU_DIR="/nonexistent")
    assert done.returncode == 1 and "rdmaemu.Error" in done.stdout
