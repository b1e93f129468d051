"""Checks that the loader of another Debian release binds its files to rdmaemu's libraries."""

import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "compatibility.d"))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tests", "support"))
import emulated  # noqa: E402
from emulated import Emulator, Failure  # noqa: E402
import packages  # noqa: E402

LIMIT_S = 60
PLUGINS = ("libibverbs", "lib*-rdmav*.so")
# Libraries with functions of one vendor, which applications link against.
VENDORS = ("libmlx5.so.1", "libmlx4.so.1", "libefa.so.1", "libhns.so.1", "libmana.so.1")


# ---- what the loader says (pure) ----

def parse_list(text):
    """Returns {library: path} of the loader's list. The path of a missing library is None."""
    found = dict(re.findall(r"^\s*(\S+) => (/\S+) \(", text, re.MULTILINE))
    found.update((name, None) for name in re.findall(r"^\s*(\S+) => not found", text, re.MULTILINE))
    return found


def misplaced(libraries, ours, root):
    """Returns what is wrong with the places from which a file's libraries come: our two must come
    from `ours`, and all others from the root."""
    wrong = []
    for name, path in sorted(libraries.items()):
        wanted = ours if name in packages.LIBRARIES else root
        if path is None:
            wrong.append("%s is missing" % name)
        elif not path.startswith(wanted + "/"):
            wrong.append("%s is %s, which is not below %s" % (name, path, wanted))
    return wrong


def parse_unresolved(text):
    """Returns the lines of the loader about symbols and versions that it does not find."""
    return [line.strip() for line in text.splitlines()
            if re.search(r"undefined symbol|symbol .* not defined|version .* not found|"
                         r"cannot be preloaded", line)]


def parse_bindings(text, file, directory):
    """Returns the NAME@VERSION that LD_DEBUG=bindings shows bound from the file to our libraries."""
    pattern = (r"binding file %s \[0\] to %s/\S+ \[0\]: \w+ symbol `(\S+)' \[(\S+)\]" % (
        re.escape(file), re.escape(directory)))
    return {"%s@%s" % found for found in re.findall(pattern, text)}


def node_counts(names):
    """Returns "61 of IBVERBS_PRIVATE_34, 12 of IBVERBS_1.1": how many names each version has."""
    versions = [name.split("@")[1] for name in names]
    return ", ".join("%d of %s" % (versions.count(each), each)
                     for each in sorted(set(versions), key=lambda each: (-versions.count(each), each)))


def judge_provider(imported, bound, unresolved):
    """Returns what the loader bound. Raises Failure if a name that the file imports is not bound."""
    if unresolved:
        raise Failure("\n".join(unresolved))
    if imported - bound:
        raise Failure("imported, but not bound to rdmaemu's library: " +
                      ", ".join(sorted(imported - bound)))
    if not imported:
        raise Failure("the file imports no name of libibverbs, so that nothing was shown")
    return node_counts(imported)


# ---- the checks ----

def listed(root, path):
    """Returns what the loader says when it resolves all symbols of a file, as `ldd -r` does."""
    done = subprocess.run(
        [root.loader, "--library-path", "%s:%s" % (root.ours, root.libraries), path], text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S,
        env={"LD_TRACE_LOADED_OBJECTS": "1", "LD_WARN": "yes", "LD_BIND_NOW": "yes", "LC_ALL": "C"})
    return done.stdout


def programs(root):
    """Every program of the packages gets all symbols, from our two libraries and from the root."""
    wrong, count = [], 0
    for path in root.elf_programs():
        text = listed(root, path)
        libraries = parse_list(text)
        if not set(packages.LIBRARIES) & set(libraries):
            continue
        count += 1
        wrong += ["%s: %s" % (os.path.basename(path), line) for line in
                  misplaced(libraries, root.ours, root.path) + parse_unresolved(text)]
    if wrong or not count:
        raise Failure("\n".join(wrong) or "no program needs libibverbs.so.1 or librdmacm.so.1")
    return "%d programs" % count


def provider_files(root):
    """Returns the provider libraries: the plugins, and the libraries that applications link."""
    plugins = os.path.join(root.libraries, PLUGINS[0])
    paths = [os.path.join(plugins, name) for name in sorted(os.listdir(plugins))
             if re.fullmatch(PLUGINS[1].replace("*", ".*"), name)]
    return paths + [path for path in (os.path.join(root.libraries, name) for name in VENDORS)
                    if os.path.exists(path)]


def provider(root, path):
    """ibv_devices lists the emulated device with the provider library in its process, all of whose
    symbols the loader has bound before."""
    imported = packages.parse_names(
        packages.output("readelf", "--dyn-syms", "-W", path))["imported"]
    with Emulator() as emulator, tempfile.TemporaryDirectory() as logs:
        argv = ["env", "LD_BIND_NOW=1", "LD_DEBUG=bindings", "LD_DEBUG_OUTPUT=%s/log" % logs,
                root.loader, "--library-path", "%s:%s" % (root.ours, root.libraries), "--preload", path,
                root.program("ibv_devices")]
        program = emulator.start("one", emulated.free_addresses(1)[0], argv)
        status = program.wait(LIMIT_S)
        unresolved = parse_unresolved(program.output)
        if status and not unresolved:
            raise Failure(program.describe())
        text = ""
        for name in os.listdir(logs):
            with open(os.path.join(logs, name), errors="replace") as log:
                text += log.read()
        told = judge_provider(imported, parse_bindings(text, path, root.ours), unresolved)
        program.expect(r"^ +rxe0 +\t?[0-9a-f]{16}$")
    return told


def providers(root):
    """Returns (name, function) of each provider library."""
    return [("provider." + os.path.basename(path), lambda path=path: provider(root, path))
            for path in provider_files(root)]
