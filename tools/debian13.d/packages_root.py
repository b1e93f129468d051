"""A directory with unpacked packages of another Debian release. Nothing is installed, no maintainer
script runs, and the machine's own package lists stay as they are."""

import glob
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

SOURCES = "/etc/apt/sources.list.d/debian.sources"
WANTED = ("rdmacm-utils", "ibverbs-utils", "perftest", "ibverbs-providers")
# Only maintainer scripts use these packages. apt gets a status file in which they are installed, so
# that it downloads neither them nor what they need (passwd, PAM).
ASSUMED = ("adduser", "debconf", "systemd")
LIMIT_S = 600  # of each step of apt and dpkg-deb
# base-files makes these links when it is installed. Programs name their loader below /lib64.
MERGED = ("bin", "lib", "lib64", "sbin")
# A hook of the machine may delete the machine's own downloads or write to its caches.
HOOKS = ("APT::Update::Pre-Invoke", "APT::Update::Post-Invoke", "APT::Update::Post-Invoke-Success",
         "DPkg::Pre-Invoke", "DPkg::Post-Invoke", "DPkg::Pre-Install-Pkgs")


class Problem(Exception):
    """The packages are unavailable. The text says why and what to do."""


# ---- what files and apt say (pure) ----

def parse_sources(text):
    """Returns (mirror, keyring) of the first stanza of a .sources file that is the distribution
    itself, not its security updates. Either may be None."""
    for stanza in re.split(r"\n\s*\n", text):
        lines = [line for line in stanza.splitlines() if not line.startswith("#")]
        fields = dict(line.split(":", 1) for line in lines if re.match(r"[A-Za-z-]+:", line))
        fields = {name.lower(): value.split() for name, value in fields.items()}
        suites = fields.get("suites", [])
        if "deb" in fields.get("types", []) and suites and not suites[0].endswith("-security"):
            return (fields.get("uris") or [None])[0], (fields.get("signed-by") or [None])[0]
    return None, None


def parse_install(text):
    """Returns {package: version} of what `apt-get -s install` would install."""
    return dict(re.findall(r"^Inst (\S+) (?:\[\S+\] )?\((\S+) ", text, re.MULTILINE))


def parse_interpreter(table):
    """Returns the loader that a program names, of `readelf -l -W`, or None."""
    found = re.search(r"program interpreter: (\S+)\]", table)
    return found.group(1) if found else None


def source_line(mirror, keyring, suite):
    return "deb [signed-by=%s] %s %s main\n" % (keyring, mirror, suite)


def status_file(names):
    """Returns a dpkg status file in which the packages are installed in a very new version."""
    return "\n".join("Package: %s\nStatus: install ok installed\nVersion: 99999\nArchitecture: all\n"
                     "Maintainer: none\nDescription: assumed\n" % name for name in names)


def apt_configuration(directory, user):
    """Returns the configuration that keeps apt inside the directory. apt reads it with -c after the
    machine's own files, so that a proxy of the machine stays in force."""
    place = lambda name: json.dumps(os.path.join(directory, name))
    settings = {"Dir::State": place("state"), "Dir::State::status": place("status"),
                "Dir::Cache": place("cache"), "Dir::Etc::sourcelist": place("sources.list"),
                "Dir::Etc::sourceparts": '"-"', "Dir::Etc::preferences": '"-"',
                "Dir::Etc::preferencesparts": '"-"', "Dir::Log": place("log"),
                "Acquire::Languages": '"none"', "APT::Update::Error-Mode": '"any"',
                "APT::Sandbox::User": json.dumps(user)}
    return "".join("#clear %s;\n" % hook for hook in HOOKS) + "".join(
        "%s %s;\n" % each for each in settings.items())


def deb_start(name, version):
    """Returns how the name of a downloaded package begins."""
    return "%s_%s_" % (name, version.replace(":", "%3a"))


def wrapper(loader, program, ours, libraries):
    """Returns a script that runs a program of the root with the root's own loader and C library, on
    the libraries that `rdmaemu run` names, else on those in `ours`.

    This works as root and as an ordinary user (all default cases passed as both) and needs no
    namespace. A chroot of an ordinary user needs a user namespace, which containers often refuse. In
    the chroot `rdmaemu` does not start, because the root has no libisal2. The chroot also needs
    /proc, /dev and the hosts' directory.
    """
    loader, program, ours, libraries, name = map(shlex.quote, (
        loader, program, ours, libraries, os.path.basename(program)))
    return ('#!/bin/sh\n[ "$LD_LIBRARY_PATH" ] || LD_LIBRARY_PATH=%s\n'
            'exec %s --argv0 %s --library-path "$LD_LIBRARY_PATH":%s %s "$@"\n' % (
                ours, loader, name, libraries, program))


# ---- apt and dpkg-deb ----

def command(*argv):
    """Returns the output of a command that must succeed."""
    try:
        done = subprocess.run(argv, text=True, errors="replace", stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT_S,
                              env={**os.environ, "LC_ALL": "C"})
    except FileNotFoundError:
        raise Problem("%s is not installed; this command needs a Debian with apt, dpkg-deb and "
                      "binutils" % argv[0]) from None
    except subprocess.TimeoutExpired:
        raise Problem("%s did not end in %d s; is the network there?" % (
            " ".join(argv), LIMIT_S)) from None
    if done.returncode:
        raise Problem("%s ended with status %d:\n%s" % (
            " ".join(argv), done.returncode, done.stderr.strip() or done.stdout.strip()))
    return done.stdout


def archive(mirror, keyring):
    """Returns (mirror, keyring): those given, else the machine's."""
    if not (mirror and keyring) and os.path.exists(SOURCES):
        with open(SOURCES, encoding="utf-8") as text:
            found = parse_sources(text.read())
        mirror, keyring = mirror or found[0], keyring or found[1]
    if not mirror or not keyring:
        raise Problem("%s names no archive with a Signed-By file; give --mirror "
                      "http://deb.debian.org/debian and --keyring "
                      "/usr/share/keyrings/debian-archive-keyring.gpg" % SOURCES)
    return mirror, keyring


def download(directory, line):
    """Downloads WANTED and what they need. Returns ({package: version}, paths of the files)."""
    for name in ("state/lists/partial", "cache/archives/partial", "log"):
        os.makedirs(os.path.join(directory, name), exist_ok=True)
    user = command("id", "-un").strip()
    for name, text in (("sources.list", line), ("status", status_file(ASSUMED)),
                       ("apt.conf", apt_configuration(directory, user))):
        with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
            file.write(text)
    apt = ("apt-get", "-q", "-y", "-c", os.path.join(directory, "apt.conf"))
    install = ("--no-install-recommends", "install", *WANTED)
    command(*apt, "update")
    versions = parse_install(command(*apt, "-s", *install))
    command(*apt, "--download-only", *install)
    archives = os.path.join(directory, "cache", "archives")
    files = [path for name, version in versions.items()
             for path in glob.glob(os.path.join(glob.escape(archives), deb_start(name, version) + "*"))]
    if len(files) != len(versions) or not set(WANTED) <= set(versions):
        raise Problem("apt-get chose %s, and %s has %d of these files; delete %s and repeat" % (
            " ".join(sorted(versions)), archives, len(files), directory))
    return versions, files


def unpack(files, root):
    os.makedirs(os.path.join(root, "usr"))
    for name in MERGED:
        os.makedirs(os.path.join(root, "usr", name))
        os.symlink(os.path.join("usr", name), os.path.join(root, name))
    for path in files:
        command("dpkg-deb", "-x", path, root)


class Root:
    """The unpacked packages."""

    def __init__(self, directory):
        self.path = os.path.join(directory, "root")
        self.programs = os.path.join(self.path, "opt", "programs")  # the wrappers
        self.prefix = os.path.join(self.path, "opt", "rdmaemu")
        self.ours = os.path.join(self.prefix, "lib", "rdmaemu")  # our libraries
        with open(os.path.join(self.path, "packages.json"), encoding="utf-8") as text:
            self.versions = json.load(text)
        found = glob.glob(os.path.join(glob.escape(self.path), "usr", "lib", "*", "libc.so.6"))
        interpreter = parse_interpreter(command("readelf", "-l", "-W", self.program("ibv_devices")))
        if len(found) != 1 or not interpreter:
            raise Problem("%s has no C library of one architecture; repeat with --refresh" % self.path)
        self.libraries = os.path.dirname(found[0])
        self.loader = self.path + interpreter

    def program(self, name):
        return os.path.join(self.path, "usr", "bin", name)

    def elf_programs(self):
        """Returns the paths of the programs that are not scripts."""
        paths = []
        for path in sorted(glob.glob(glob.escape(self.program("")) + "*")):
            with open(path, "rb") as file:
                if file.read(4) == b"\x7fELF":
                    paths.append(path)
        return paths

    def write_wrappers(self):
        shutil.rmtree(self.programs, ignore_errors=True)
        os.makedirs(self.programs)
        for program in self.elf_programs():
            path = os.path.join(self.programs, os.path.basename(program))
            with open(path, "w", encoding="utf-8") as file:
                file.write(wrapper(self.loader, program, self.ours, self.libraries))
            os.chmod(path, 0o755)


def prepare(directory, suite, mirror, keyring, refresh):
    """Returns the Root in the directory. Downloads it if it is absent or `refresh` is true."""
    root = os.path.join(directory, "root")
    if refresh or not os.path.exists(os.path.join(root, "packages.json")):
        print("downloading packages of %s into %s" % (suite, directory), file=sys.stderr)
        line = source_line(*archive(mirror, keyring), suite)
        versions, files = download(os.path.join(directory, "apt"), line)
        shutil.rmtree(root + ".partial", ignore_errors=True)
        unpack(files, root + ".partial")
        with open(os.path.join(root + ".partial", "packages.json"), "w", encoding="utf-8") as text:
            json.dump(versions, text)
        shutil.rmtree(root, ignore_errors=True)
        os.rename(root + ".partial", root)
    return Root(directory)
