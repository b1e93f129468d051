"""The commands of the documentation work, and its links lead somewhere.

Each page is one case. The case runs the page's `sh` blocks in order, in one shell and an empty
directory, with an installed rdmaemu on PATH. CONTRIBUTING.md has the convention for the blocks.

usage: docs_test.py [PAGE...]; without a page: all, and the check of the links.
"""

import functools
import glob
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.path[:0] = [os.path.join(ROOT, *each.split("/")) for each in (
    "tests/docs", "tests/support", "tools/lib")]
import ci_files  # noqa: E402
import emulated  # noqa: E402
from emulated import Failure  # noqa: E402
from markdown_text import FENCE, LINK, anchors_of, links_of, plain_lines  # noqa: E402

BINARY = os.environ.get("RDMA_TEST_BINARY") or os.path.realpath("tools/cli/rdmaemu")
PAGE_LIMIT_S = 240  # a page takes seconds; other tests may share the machine
INSTALL_LIMIT_S = 120
AT_ONCE = 4
# Debian's programs that pages run. A page with one that is not installed is skipped.
PROGRAMS = ("rdma_server", "rdma_client", "ucmatose", "udaddy", "ibv_devinfo", "ibv_devices",
            "ib_write_bw", "tshark", "pkg-config", "c++", "cmake")

ATTRIBUTES = {"sh": {"skip"}}  # every other language may have "file"


class Block:
    """A fenced code block of a page. `line` is the line of its fence."""

    def __init__(self, line, info, text):
        self.line, self.text = line, text
        self.language, _, rest = info.partition(" ")
        self.attributes = dict(re.findall(r'(\w+)="([^"]*)"', rest))
        self.other = re.sub(r'\w+="[^"]*"', "", rest).strip()

    def wrong(self):
        """Returns what is wrong with the info string, or ''."""
        allowed = ATTRIBUTES.get(self.language, {"file"})
        unknown = sorted(set(self.attributes) - allowed)
        if unknown or self.other:
            return "a block of %r cannot have %s" % (self.language,
                                                     ", ".join(unknown) or repr(self.other))
        if not all(self.attributes.values()):
            return "an attribute is empty"
        if os.path.isabs(self.attributes.get("file", "")) or ".." in self.attributes.get("file", ""):
            return "a file is below the empty directory"
        return ""


def blocks_of(path):
    found, fence = [], None
    with open(path) as page:
        for number, line in enumerate(page, 1):
            matched = FENCE.match(line.rstrip("\n"))
            if fence is None and matched:
                fence, begun, info, lines = matched.group(1), number, matched.group(2).strip(), []
            elif fence and matched and matched.group(1).startswith(fence) and not matched.group(2):
                found.append(Block(begun, info, "".join(lines)))
                fence = None
            elif fence:
                lines.append(line)
    if fence:
        raise Failure("%s:%d: the block has no end" % (path, begun))
    return found


def pages(*patterns):
    return sorted(os.path.relpath(path, ROOT) for pattern in patterns
                  for path in glob.glob(os.path.join(ROOT, pattern), recursive=True))


def is_executed(block):
    return block.language == "sh" and "skip" not in block.attributes


# ---- commands


class Installed:
    """An installed rdmaemu, which all pages share."""

    def __enter__(self):
        self.root = tempfile.mkdtemp(prefix="rdmaemu-docs-", dir="/tmp")
        self.prefix = os.path.join(self.root, "prefix")
        done = subprocess.run([BINARY, "install", "--prefix", self.prefix], text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=INSTALL_LIMIT_S)
        if done.returncode != 0:
            raise Failure(done.stdout)
        self.environment = {
            key: value for key, value in os.environ.items()
            if not key.startswith(("RDMAEMU_", "TEST_", "XML_"))
            and key not in ("LD_LIBRARY_PATH", "LD_PRELOAD")}
        # The three lines of docs/getting-started.md.
        self.environment.update(
            PATH="%s/bin:%s" % (self.prefix, os.environ["PATH"]),
            PKG_CONFIG_PATH=self.prefix + "/lib/pkgconfig",
            PYTHONPATH=self.prefix + "/lib/python3")
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.root, ignore_errors=True)


@functools.lru_cache(maxsize=None)
def own_network():
    """Returns the command that starts a program in a network namespace of its own, with loopback.
    Pages then run side by side, although they use the same addresses. [] when this is refused."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return []
    for flags in ("-n", "-rn"):
        command = ["unshare", flags, "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
        if subprocess.run([*command, "true"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL).returncode == 0:
            return command
    return []


def need_python(installed, *modules):
    done = subprocess.run(["python3", "-c", "import " + ", ".join(modules)],
                          env=dict(installed.environment, PYTHONPATH=""), stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if done.returncode != 0:
        raise emulated.Skip("Python has no " + " or no ".join(modules))


def script_of(page, blocks, files):
    """Returns the page's commands as one script. `files` is the directory of its files' texts."""
    lines = ["set -eu", 'trap \'echo "$at: status $? of: $BASH_COMMAND" >&2\' ERR']
    for number, block in enumerate(blocks):
        if "file" in block.attributes:
            kept = os.path.join(files, str(number))
            with open(kept, "w") as file:
                file.write(block.text)
            name = shlex.quote(block.attributes["file"])
            lines += ['mkdir -p "$(dirname %s)"' % name, "cp %s %s" % (shlex.quote(kept), name)]
        elif is_executed(block):
            lines += ["at=%s:%d" % (page, block.line), block.text]
    return "\n".join(lines) + "\n"


def run_page(installed, page):
    blocks = blocks_of(os.path.join(ROOT, page))
    for program in PROGRAMS:
        if any(program in block.text for block in blocks if is_executed(block)):
            emulated.need(program)
    if any("pytest" in block.text for block in blocks if is_executed(block)):
        need_python(installed, "pytest", "pyverbs")
    with tempfile.TemporaryDirectory(prefix="page-", dir=installed.root) as own:
        files, scratch, hosts = (os.path.join(own, name) for name in ("files", "scratch", "hosts"))
        for directory in (files, scratch, hosts):
            os.mkdir(directory)
        script = os.path.join(own, "script")
        with open(script, "w") as file:
            file.write(script_of(page, blocks, files))
        environment = dict(installed.environment, RDMAEMU_DIR=hosts, TMPDIR=own)
        said = os.path.join(own, "said")
        with open(said, "wb") as output:
            process = subprocess.Popen([*own_network(), "bash", script], cwd=scratch,
                                       env=environment, stdin=subprocess.DEVNULL, stdout=output,
                                       stderr=subprocess.STDOUT, start_new_session=True)
            try:
                status = process.wait(PAGE_LIMIT_S)
            except subprocess.TimeoutExpired:
                status = "none after %d s" % PAGE_LIMIT_S
            end(process, installed, environment)
        if status != 0:
            with open(said, errors="replace") as output:
                raise Failure("%s: status %s\n%s" % (page, status, output.read()[-20000:]))


def end(process, installed, environment):
    """Ends what a page has left: its session and its hosts."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
    for path in glob.glob(os.path.join(environment["RDMAEMU_DIR"], "*.sock")):
        subprocess.run([os.path.join(installed.prefix, "bin/rdmaemu"), "stop",
                        os.path.basename(path)[:-len(".sock")]], env=environment,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, timeout=60)


def a_page_fails_by_its_first_wrong_command(installed):
    """Checks this test: which pages pass, and that the message names the command."""
    fence = "```"
    with tempfile.TemporaryDirectory(prefix="pages-", dir=installed.root) as own:
        for number, (text, wrong) in enumerate((
                ("%s sh\ntrue\n%s\n", None),
                ('%s sh skip="needs a device"\nfalse\n%s\n', None),
                ("%s console\nfalse\n%s\n", None),
                ('%s text file="a/b"\nc\n%s\n%s sh\ngrep c a/b\n%s\n', None),
                ("%s sh\nfalse || true\n%s\n", None),
                ("%s sh\ncd /\n%s\n%s sh\ntest $PWD = /\n%s\n", None),
                ("text\n%s sh\ntrue\nfalse\ntrue\n%s\n", ".md:2: status 1 of: false"),
                ("%s sh\nno_such_command\n%s\n", ".md:1: status 127 of: no_such_command"))):
            page = os.path.join(own, "page%d.md" % number)
            with open(page, "w") as file:
                file.write(text.replace("%s", fence).replace("``` ", "```"))
            try:
                run_page(installed, page)
                said = None
            except Failure as failure:
                said = str(failure)
            if (wrong is None) != (said is None) or (wrong and wrong not in said):
                raise Failure("%r: expected %r, not %r" % (text, wrong, said))


def the_recipes_are_rules(installed):
    """A host accepts each rule that docs/inject-faults.md has between backquotes."""
    rules = []
    for _, line in plain_lines(os.path.join(ROOT, "docs", "inject-faults.md")):
        rules += re.findall(r"`((?:name|at) = [^`]*)`", line)
    if len(rules) < 40:
        raise Failure("only %d rules were found" % len(rules))
    with tempfile.TemporaryDirectory(prefix="rules-", dir=installed.root) as own:
        scenario = os.path.join(own, "scenario.toml")
        with open(scenario, "w") as file:
            for rule in rules:
                file.write("[[fault]]\n%s\n" % re.sub(r", (?=[a-z_]+ = )", "\n", rule))
        done = subprocess.run(
            [*own_network(), "rdmaemu", "run", "--scenario", scenario, "--", "true"], text=True,
            env=dict(installed.environment, RDMAEMU_DIR=own), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PAGE_LIMIT_S)
    if done.returncode != 0:
        raise Failure(done.stdout)


# ---- the form of blocks, and links


def blocks_follow_the_convention():
    wrong = []
    for page in pages("*.md", "docs/*.md"):
        for block in blocks_of(os.path.join(ROOT, page)):
            if block.wrong():
                wrong.append("%s:%d: %s" % (page, block.line, block.wrong()))
    if wrong:
        raise Failure("\n".join(wrong))


def links_lead_somewhere():
    broken, checked = [], 0
    for page in pages("*.md", "docs/**/*.md", "tools/**/*.md"):
        for number, link in links_of(os.path.join(ROOT, page)):
            checked += 1
            path, _, anchor = link.partition("#")
            target = os.path.normpath(os.path.join(ROOT, os.path.dirname(page), path)) \
                if path else os.path.join(ROOT, page)
            if not os.path.exists(target):
                broken.append("%s:%d: there is no %s" % (page, number, path))
            elif anchor and anchor not in anchors_of(target):
                broken.append("%s:%d: %s has no #%s" % (page, number, path or page, anchor))
    if broken or not checked:
        raise Failure("\n".join(broken) or "no links found")


def every_page_is_in_the_index():
    index = os.path.join(ROOT, "docs", "index.md")
    linked = {link.partition("#")[0] for _, line in plain_lines(index) for link in LINK.findall(line)}
    missing = [page for page in pages("docs/*.md")
               if os.path.basename(page) not in linked | {"index.md"}]
    if missing:
        raise Failure("docs/index.md has no link to " + ", ".join(missing))


def every_function_of_the_c_api_is_on_its_page():
    with open(os.path.join(ROOT, "emulator/include/rdmaemu/rdmaemu.h")) as header:
        functions = re.findall(r"^[a-z].*?\b(rdmaemu_\w+)\(", header.read(), re.MULTILINE)
    with open(os.path.join(ROOT, "docs/c-api.md")) as page:
        named = set(re.findall(r"\b(rdmaemu_\w+)\(", page.read()))
    missing = [name for name in functions if name not in named]
    if missing or len(functions) < 20:
        raise Failure("of %d functions docs/c-api.md lacks %s" % (len(functions), ", ".join(missing)))


def files_for_ci_are_well_formed():
    ci_files.check(ROOT, blocks_of(os.path.join(ROOT, "docs", "ci.md")))


def the_action_runs_commands(installed):
    ci_files.run_action(ROOT, installed, own_network())


def main():
    wanted = sys.argv[1:]
    checks = [] if wanted else [(check.__name__, check) for check in (
        blocks_follow_the_convention, links_lead_somewhere, every_page_is_in_the_index,
        every_function_of_the_c_api_is_on_its_page, files_for_ci_are_well_formed)]
    with Installed() as installed:
        if not wanted:
            checks += [(check.__name__, functools.partial(check, installed)) for check in (
                a_page_fails_by_its_first_wrong_command, the_recipes_are_rules,
                the_action_runs_commands)]
        cases = [(page, functools.partial(run_page, installed, page))
                 for page in wanted or pages("*.md", "docs/*.md")
                 if any(map(is_executed, blocks_of(os.path.join(ROOT, page))))]
        return emulated.run_cases("docs", checks + cases, AT_ONCE if own_network() else 1)


if __name__ == "__main__":
    sys.exit(main())
