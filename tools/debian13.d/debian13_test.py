"""The parts of tools/debian13 without network: what it reads from apt and the loader, which cases it
chooses, and what it prints."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import debian13  # noqa: E402
import loading  # noqa: E402
import packages_root  # noqa: E402
from debian13 import Result  # noqa: E402
from loading import Failure  # noqa: E402

SOURCES = """# Types: deb
Types: deb
URIs: http://archive/debian-security
Suites: bookworm-security
Components: main
Signed-By: /keys/security.gpg

Types: deb
# http://snapshot/debian
URIs: http://archive/debian http://other/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /keys/debian.gpg
"""
INSTALL = """NOTE: This is only a simulation!
Inst libc6 (2.41-12+deb13u5 Debian:13.5/stable [amd64]) []
Inst libpci3 [1:3.9] (1:3.13.0-2 Debian:13.5/stable [amd64])
Conf libc6 (2.41-12+deb13u5 Debian:13.5/stable [amd64])
"""
LIST = """\tlinux-vdso.so.1 (0x00007f00)
\tlibibverbs.so.1 => /r/opt/rdmaemu/lib/rdmaemu/libibverbs.so.1 (0x00007f01)
\tlibm.so.6 => /r/usr/lib/x/libm.so.6 (0x00007f02)
\tlibpci.so.3 => not found
\t/r/lib64/ld-linux-x86-64.so.2 (0x00007f03)
"""
OURS = "/r/opt/rdmaemu/lib/rdmaemu"
BINDINGS = """
  7:\tbinding file /r/p.so [0] to /r/opt/rdmaemu/lib/rdmaemu/libibverbs.so.1 [0]: normal symbol `a' [V_34]
  7:\tbinding file /r/p.so [0] to /r/usr/lib/x/libc.so.6 [0]: normal symbol `free' [GLIBC_2.2.5]
  7:\tbinding file /r/p.so [0] to /r/usr/lib/x/libibverbs.so.1 [0]: normal symbol `b' [V_34]
  7:\tbinding file /r/q.so [0] to /r/opt/rdmaemu/lib/rdmaemu/libibverbs.so.1 [0]: normal symbol `c' [V_34]
"""


class Packages(unittest.TestCase):
    def test_mirror_and_keys_are_those_of_the_distribution_itself(self):
        self.assertEqual(packages_root.parse_sources(SOURCES),
                         ("http://archive/debian", "/keys/debian.gpg"))
        self.assertEqual(packages_root.parse_sources(SOURCES.split("\n\n")[0]), (None, None))
        self.assertEqual(packages_root.parse_sources("Types: deb\nSuites: x\n"), (None, None))

    def test_packages_that_apt_would_install(self):
        self.assertEqual(packages_root.parse_install(INSTALL),
                         {"libc6": "2.41-12+deb13u5", "libpci3": "1:3.13.0-2"})

    def test_an_epoch_is_escaped_in_a_files_name(self):
        self.assertEqual(packages_root.deb_start("libpci3", "1:3.13.0-2"), "libpci3_1%3a3.13.0-2_")

    def test_the_interpreter_of_a_program(self):
        line = "      [Requesting program interpreter: /lib64/ld-linux-x86-64.so.2]\n"
        self.assertEqual(packages_root.parse_interpreter(line), "/lib64/ld-linux-x86-64.so.2")
        self.assertIsNone(packages_root.parse_interpreter("no segment"))

    def test_apt_stays_inside_the_directory(self):
        text = packages_root.apt_configuration("/c", "me")
        for name in ("Dir::State", "Dir::State::status", "Dir::Cache", "Dir::Etc::sourcelist"):
            self.assertRegex(text, '(?m)^%s "/c/' % name)
        self.assertIn("#clear APT::Update::Post-Invoke;\n", text)
        self.assertIn('APT::Sandbox::User "me";\n', text)

    def test_assumed_packages_are_installed_in_the_status_file(self):
        stanzas = packages_root.status_file(["a", "b"]).split("\n\n")
        self.assertEqual([each.splitlines()[0] for each in stanzas], ["Package: a", "Package: b"])
        self.assertTrue(all("Status: install ok installed" in each for each in stanzas))


class Wrapper(unittest.TestCase):
    def ran(self, environment):
        """Returns the arguments that the loader gets from a wrapper with a quote in its paths."""
        with tempfile.TemporaryDirectory(prefix="it's ") as directory:
            loader = os.path.join(directory, "ld.so")
            with open(loader, "w") as file:
                file.write('#!/bin/sh\nprintf "%s\\n" "$@"\n')
            path = os.path.join(directory, "rping")
            with open(path, "w") as file:
                file.write(packages_root.wrapper(loader, "/r/rping", "/our's", "/r/lib"))
            os.chmod(loader, 0o755)
            os.chmod(path, 0o755)
            return subprocess.run([path, "-a", "x y"], env=environment, text=True,
                                  stdout=subprocess.PIPE).stdout.splitlines()

    def test_libraries_are_those_of_rdmaemu_run(self):
        self.assertEqual(self.ran({"LD_LIBRARY_PATH": "/layer:/ours"}), [
            "--argv0", "rping", "--library-path", "/layer:/ours:/r/lib", "/r/rping", "-a", "x y"])

    def test_without_rdmaemu_run_the_libraries_are_the_installed_ones(self):
        self.assertEqual(self.ran({})[3], "/our's:/r/lib")


class Loading(unittest.TestCase):
    def test_our_two_libraries_must_be_ours_and_all_others_the_roots(self):
        found = loading.parse_list(LIST)
        self.assertEqual(sorted(found), ["libibverbs.so.1", "libm.so.6", "libpci.so.3"])
        self.assertEqual(loading.misplaced(found, OURS, "/r"), ["libpci.so.3 is missing"])
        self.assertEqual(loading.misplaced({"libm.so.6": "/usr/lib/libm.so.6"}, OURS, "/r"),
                         ["libm.so.6 is /usr/lib/libm.so.6, which is not below /r"])
        self.assertEqual(len(loading.misplaced({"librdmacm.so.1": "/r/usr/lib/librdmacm.so.1"},
                                               OURS, "/r")), 1)

    def test_names_that_the_loader_does_not_find(self):
        text = ("./a: symbol lookup error: ./p.so: undefined symbol: ibv_x, version V_9\n"
                "./a: /l/libibverbs.so.1: version `V_9' not found (required by ./p.so)\n"
                "ERROR: ld.so: object 'p.so' from --preload cannot be preloaded: ignored.\n"
                "all is well\n")
        self.assertEqual(len(loading.parse_unresolved(text)), 3)

    def test_only_bindings_of_the_file_to_our_library_count(self):
        self.assertEqual(loading.parse_bindings(BINDINGS, "/r/p.so", OURS), {"a@V_34"})

    def test_a_provider_passes_when_every_import_is_bound(self):
        self.assertEqual(loading.judge_provider({"a@V_2", "b@V_1", "c@V_2"},
                                                {"a@V_2", "b@V_1", "c@V_2"}, []), "2 of V_2, 1 of V_1")
        for imported, bound, unresolved in (({"a@V", "b@V"}, {"a@V"}, []), (set(), set(), []),
                                            ({"a@V"}, {"a@V"}, ["undefined symbol"])):
            with self.assertRaises(Failure):
                loading.judge_provider(imported, bound, unresolved)


class Root:
    """A root without programs."""
    programs = "/nowhere"


class Cases(unittest.TestCase):
    NAMES = ["loader.programs", "rping.one_host", "rping_64KiB.one_host", "rping.two_hosts",
             "provider.libmlx5.so.1"]

    def test_the_choice_is_by_the_name_without_hosts(self):
        self.assertEqual(debian13.selected(self.NAMES, ["rping"], [], False), [
            "loader.programs", "rping.one_host", "rping.two_hosts", "provider.libmlx5.so.1"])
        self.assertEqual(debian13.selected(self.NAMES, ["rping"], [], True), self.NAMES)

    def test_patterns_replace_the_choice(self):
        self.assertEqual(debian13.selected(self.NAMES, ["rping"], ["*.one_host"], False),
                         ["rping.one_host", "rping_64KiB.one_host"])
        self.assertEqual(debian13.selected(self.NAMES, ["rping"], ["x"], True), [])

    def test_tests_apps_has_each_chosen_case(self):
        names = {debian13.base_name(name) for name, _ in debian13.hosted_cases(Root)}
        self.assertEqual(set(debian13.CHOSEN) - names, set())

    def test_a_case_never_runs_the_machines_own_program(self):
        result = debian13.run("sh", lambda: debian13.needed(Root, "sh"))
        self.assertEqual((result.kind, result.text), ("skipped", "the packages have no sh"))


class Output(unittest.TestCase):
    RESULTS = [Result("rping.one_host", "passed", "", 1.25), Result("rping.two_hosts", "failed", "why\n", 2),
               Result("q", "skipped", "the packages have no q", 0),
               Result("provider.x.so", "passed", "2 of V", 0)]

    def test_a_line_for_each_result(self):
        self.assertEqual([debian13.line(each) for each in self.RESULTS], [
            "rping.one_host: passed (1.2 s)", "rping.two_hosts: FAILED (2.0 s)\nwhy\n",
            "q: skipped: the packages have no q", "provider.x.so: passed (0.0 s): 2 of V"])
        self.assertEqual(debian13.summary(self.RESULTS), "2 passed, 1 failed, 1 skipped")

    def test_json_has_the_packages_and_every_result(self):
        parsed = json.loads(debian13.as_json(self.RESULTS, "trixie", {"libc6": "2.41"}))
        self.assertEqual(parsed["packages"], {"libc6": "2.41"})
        self.assertEqual([each["result"] for each in parsed["results"]],
                         ["passed", "failed", "skipped", "passed"])

    def test_the_page_joins_the_hosts_of_a_case(self):
        text = debian13.page(self.RESULTS, "trixie", "Debian X", {"libc6": "2.41"})
        self.assertIn("| `rping` | one_host: passed; two_hosts: FAILED |\n", text)
        self.assertIn("| `q` | skipped: the packages have no q |\n", text)
        self.assertIn("| `provider.x.so` | passed: 2 of V |\n", text)
        self.assertIn("Packages: libc6 2.41.\nResult: 2 passed, 1 failed, 1 skipped.\n", text)


if __name__ == "__main__":
    unittest.main()
