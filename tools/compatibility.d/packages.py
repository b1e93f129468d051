"""Checks which of Debian's packages load on rdmaemu's libibverbs.so.1 and librdmacm.so.1.

For each package of the distribution that depends on libibverbs1 or librdmacm1, this command downloads
and unpacks the package into a cache, without installing it. It compares the functions that the
package's files import with the functions that rdmaemu's libraries export. Then `ldd -r` resolves every
symbol of each file. The command prints a Markdown page. Progress goes to stderr.

`tools/compatibility run` runs programs that no test runs. See its --help.
"""

import argparse
import collections
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIBRARIES = ("libibverbs.so.1", "librdmacm.so.1")
VERSIONS = ("IBVERBS_", "RDMACM_")
# rdmaemu's own libraries take the place of these packages' files.
REPLACED = {"librdmacm1": "rdmaemu's own library replaces it"}
MAX_NAMES = 4  # names that one cell of the table lists
DOWNLOAD_SECONDS = 600
DONE = ("yes", "no", "not tried")

HEAD = """# Debian's packages on rdmaemu's libraries

Look up here whether a package of {release} loads on rdmaemu's `libibverbs.so.1` and `librdmacm.so.1`.
The table has every package of the distribution that depends on libibverbs1 or librdmacm1 directly.
[debian13.md](debian13.md) has the programs of Debian 13.

To generate this page again, run `tools/compatibility > docs/packages.md`. The command downloads and
unpacks the packages into a cache, and installs none of them.

- [Columns](#columns)
- [Packages](#packages)

## Columns

- **files**: executables and libraries of the package that name one of the two libraries as needed.
- **loads**: `yes` if rdmaemu exports every name and version that these files import from the two
  libraries, and `ldd -r` resolves them. `not tried` if a library of another package is missing.
  `no` names what is missing.
- **runs**: the test or the command that runs programs of the package, or programs that use its
  library. `-` means that neither does.
- **imports that are unsupported**: functions that [abi.md](abi.md) marks `unsupported`. They load.
  They fail with EOPNOTSUPP if the program calls them.

## Packages

"""


def output(*argv, **more):
    done = subprocess.run(argv, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          stdin=subprocess.DEVNULL, errors="replace", **more)
    return done.stdout


# ---- what files say (pure) ----

def parse_names(table):
    """Returns {state: set of NAME@VERSION} of `readelf --dyn-syms -W`: "exported" and "imported"."""
    names = {"exported": set(), "imported": set()}
    for line in table.splitlines():
        words = line.split()
        if len(words) < 8 or not words[0].endswith(":") or "@" not in words[7]:
            continue
        name = words[7].replace("@@", "@")
        if name.split("@")[1].startswith(VERSIONS):
            names["imported" if words[6] == "UND" else "exported"].add(name)
    return names


def parse_needed(table):
    """Returns the libraries of `readelf -d -W`."""
    return re.findall(r"\(NEEDED\).*\[(.*)\]", table)


def parse_status(text):
    """Returns the functions that abi_status.txt marks as unsupported, as NAME@NODE."""
    names = set()
    for line in text.splitlines():
        words = line.split(" ")
        if line.startswith("#") or len(words) < 2 or words[1] != "unsupported":
            continue
        name, _, nodes = words[0].replace("@@", "@").partition("@")
        first, *others = nodes.split(",")
        stem = first.rpartition("_")[0]
        names.update([f"{name}@{first}"] + [f"{name}@{stem}_{other}" for other in others])
    return names


def parse_ldd(text):
    """Returns (missing libraries, names of rdmaemu's libraries that ldd -r does not resolve)."""
    libraries = sorted(set(re.findall(r"^\s*(\S+) => not found", text, re.MULTILINE)))
    names = set(re.findall(r"symbol:? (\S+?),? version (?:IBVERBS|RDMACM)_\S+", text))
    names |= set(re.findall(r"version `((?:IBVERBS|RDMACM)_\S+)' not found", text))
    return libraries, sorted(names)


def parse_runs(text):
    return dict(line.split(" ", 1) for line in text.splitlines() if line and line[0] != "#")


def shortened(names):
    """Returns the names as one cell: the first MAX_NAMES and how many more."""
    names = sorted({name.split("@")[0] for name in names})
    shown = ", ".join(f"`{name}`" for name in names[:MAX_NAMES])
    more = len(names) - MAX_NAMES
    return shown + (f" and {more} more" if more > 0 else "") or "-"


Package = collections.namedtuple("Package", "name version files missing unsupported libraries problem")


def loads(package):
    """Returns the cell "loads" of a package."""
    if package.problem:
        return "not tried: " + package.problem
    if not package.files:
        return "not tried: no file needs the libraries"
    if package.missing:
        return "no: " + shortened(package.missing)
    if package.libraries:
        more = len(package.libraries) - MAX_NAMES
        return ("not tried: needs " + ", ".join(f"`{each}`" for each in package.libraries[:MAX_NAMES])
                + (f" and {more} more" if more > 0 else ""))
    return "yes"


def page(packages, runs, release, rdma_core):
    counts = collections.Counter(loads(package).split(":")[0] for package in packages)
    text = HEAD.format(release=release)
    text += (f"This page was made on {release} with rdma-core {rdma_core}. Of {len(packages)} packages, "
             + ", ".join(f"{counts[each]} {each}" for each in DONE) + ".\n\n")
    text += "| package | version | files | loads | runs | imports that are unsupported |\n"
    text += "|---|---|---|---|---|---|\n"
    for package in packages:
        run = f"`{runs[package.name]}`" if package.name in runs else "-"
        text += (f"| {package.name} | {package.version or '-'} | {len(package.files)} | "
                 f"{loads(package)} | {run} | {shortened(package.unsupported)} |\n")
    return text


# ---- the packages ----

def dependents():
    listed = output("apt-cache", "rdepends", "--no-recommends", "--no-suggests", "--no-conflicts",
                    "--no-breaks", "--no-replaces", "--no-enhances", "libibverbs1", "librdmacm1")
    return sorted({line.strip(" |") for line in listed.splitlines() if line.startswith(" ")})


def parse_versions(text):
    """Returns {package: version} of `apt-cache show`."""
    return dict(re.findall(r"^Package: (\S+)\n(?:.+\n)*?Version: (\S+)", text, re.MULTILINE))


def candidates(names):
    """Returns {package: version} of what apt would install. Packages of no archive are absent."""
    return parse_versions(output("apt-cache", "show", "--no-all-versions", *names))


def unpacked(package, version, cache):
    """Downloads and unpacks a package. Returns (directory, "") or ("", what failed)."""
    place = os.path.join(cache, "unpacked", f"{package}_{version.replace(':', '%3a')}")
    if os.path.isdir(place):
        return place, ""
    debs = os.path.join(cache, "debs")
    os.makedirs(debs, exist_ok=True)
    os.makedirs(os.path.dirname(place), exist_ok=True)
    start = f"{package}_{version.replace(':', '%3a')}_"
    if not [name for name in os.listdir(debs) if name.startswith(start)]:
        try:
            said = output("apt-get", "download", "-q", f"{package}={version}", cwd=debs,
                          timeout=DOWNLOAD_SECONDS)
        except subprocess.TimeoutExpired:
            said = f"apt-get download did not end in {DOWNLOAD_SECONDS} s"
    files = [name for name in os.listdir(debs) if name.startswith(start)]
    if not files:
        print(f"  {package}: {said.strip()}", file=sys.stderr)
        return "", "the package is unavailable"
    partial = place + ".partial"
    said = output("dpkg-deb", "-x", os.path.join(debs, files[0]), partial)
    if said:
        print(f"  {package}: {said.strip()}", file=sys.stderr)
        return "", "the package cannot be unpacked"
    os.rename(partial, place)
    return place, ""


def elf_files(directory):
    """Yields the ELF files that contain the name of one of the libraries."""
    for at, _, names in sorted(os.walk(directory)):
        for name in sorted(names):
            path = os.path.join(at, name)
            if os.path.islink(path) or not os.path.isfile(path):
                continue
            with open(path, "rb") as file:
                content = file.read()
            # Most files name neither library, and readelf takes longer than this search.
            if content.startswith(b"\x7fELF") and any(each.encode() in content for each in LIBRARIES):
                yield path


def library_directories(directory):
    return sorted({at for at, _, names in os.walk(directory) if any(".so" in name for name in names)})


def examine(name, version, directory, ours, others, exported, unsupported):
    """Returns the Package of an unpacked directory. `others` are directories of other packages."""
    files, missing, imported, libraries = [], set(), set(), set()
    path = ":".join(ours + library_directories(directory) + others)
    for file in elf_files(directory):
        if not set(parse_needed(output("readelf", "-d", "-W", file))) & set(LIBRARIES):
            continue
        files.append(file)
        names = parse_names(output("readelf", "--dyn-syms", "-W", file))["imported"]
        imported |= names
        missing |= names - exported
        lacking, unresolved = parse_ldd(output("ldd", "-r", file, env={
            **os.environ, "LD_LIBRARY_PATH": path, "LC_ALL": "C"}))
        libraries |= set(lacking)
        missing |= set(unresolved)
    return Package(name, version, files, missing, imported & unsupported, sorted(libraries),
                   REPLACED.get(name, ""))


def our_libraries(command):
    """Returns the directories of rdmaemu's libraries, which `rdmaemu env` prints."""
    done = subprocess.run([command, "env"], text=True, stdout=subprocess.PIPE)
    found = re.search(r"LD_LIBRARY_PATH='([^']*)'", done.stdout)
    if done.returncode or not found:
        sys.exit(f"error: `{command} env` printed no LD_LIBRARY_PATH; build rdmaemu with "
                 "tools/quickstart, or name an installed command with --rdmaemu")
    return found.group(1).split(":")


def exports(directories):
    names, files = set(), [os.path.join(at, library) for at in directories for library in LIBRARIES]
    for file in filter(os.path.exists, files):
        names |= parse_names(output("readelf", "--dyn-syms", "-W", file))["exported"]
    return names


def read(*parts):
    with open(os.path.join(ROOT, *parts), encoding="utf-8") as file:
        return file.read()


def main():
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"),
                         "rdmaemu", "packages")
    parser = argparse.ArgumentParser(
        prog="tools/compatibility", formatter_class=argparse.RawDescriptionHelpFormatter,
        description=__doc__, epilog="Example:\n  tools/compatibility > docs/packages.md\n"
        "  tools/compatibility --rdmaemu PREFIX/bin/rdmaemu perftest qperf")
    parser.add_argument("packages", nargs="*", metavar="PACKAGE",
                        help="check these packages only (default: all that depend on the libraries)")
    parser.add_argument("--rdmaemu", default=os.path.join(ROOT, "tools", "rdmaemu"),
                        help="the command whose libraries are checked (default: this checkout's)")
    parser.add_argument("--cache", default=cache, help="directory of downloads (default: %(default)s)")
    options = parser.parse_args()

    ours = our_libraries(options.rdmaemu)
    exported, unsupported = exports(ours), parse_status(read("shim", "abi_status.txt"))
    if not exported:
        sys.exit(f"error: {':'.join(ours)} exports no name; run tools/quickstart to build it")
    names = options.packages or dependents()
    if not names:
        sys.exit("error: apt-cache lists no package that needs libibverbs1; run: apt-get update")
    places, versions = {}, candidates([*names, "libibverbs1"])
    for number, name in enumerate(names, 1):
        version = versions.get(name, "")
        print(f"[{number}/{len(names)}] {name} {version}", file=sys.stderr)
        places[name] = (version, *(unpacked(name, version, options.cache) if version else
                                   ("", "the package is unavailable")))
    others = [at for _, directory, _ in places.values() if directory
              for at in library_directories(directory)]
    packages = [examine(name, version, directory, ours, others, exported, unsupported) if directory
                else Package(name, version, [], set(), set(), [], problem)
                for name, (version, directory, problem) in places.items()]
    release = re.search(r'PRETTY_NAME="(.*)"', open("/etc/os-release").read()).group(1)
    print(page(packages, parse_runs(read("tools", "compatibility.d", "runs.txt")), release,
               versions.get("libibverbs1", "?")), end="")


if __name__ == "__main__":
    main()
