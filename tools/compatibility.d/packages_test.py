"""The pure parts of tools/compatibility: what it reads from readelf and ldd, and the page it prints."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import packages  # noqa: E402
from packages import Package  # noqa: E402

SYMBOLS = """
Symbol table '.dynsym' contains 4 entries:
   Num:    Value          Size Type    Bind   Vis      Ndx Name
     1: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND rdma_listen@RDMACM_1.0 (4)
     2: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND strlen@GLIBC_2.2.5 (2)
     3: 0000000000001000    10 FUNC    GLOBAL DEFAULT   14 ibv_open_device@@IBVERBS_1.1
"""
STATUS = """# a comment
ibv_a@@IBVERBS_1.1 complete
ibv_b@@IBVERBS_PRIVATE_34,57 unsupported as rxe
ibv_c@IBVERBS_1.0 unsupported
"""
LDD = """\tlibibverbs.so.1 => /x/libibverbs.so.1 (0x00007f)
\tlibfoo.so.1 => not found
undefined symbol: main_hook\t(./plugin.so)
symbol ibv_new version IBVERBS_9.9 not defined in file libibverbs.so.1 with link time reference\t(./a)
undefined symbol: rdma_new, version RDMACM_9.9\t(./a)
./a: /x/librdmacm.so.1: version `RDMACM_9.9' not found (required by ./a)
"""


def package(**changes):
    return Package("p", "1", ["file"], set(), set(), [], "")._replace(**changes)


class Packages(unittest.TestCase):
    def test_names_of_other_libraries_are_not_compared(self):
        self.assertEqual(packages.parse_names(SYMBOLS), {
            "imported": {"rdma_listen@RDMACM_1.0"}, "exported": {"ibv_open_device@IBVERBS_1.1"}})

    def test_versions_of_several_packages(self):
        text = "Package: a\nSource: s (1)\nVersion: 2:1-1\nDepends: x\n\nPackage: b\nVersion: 3\n"
        self.assertEqual(packages.parse_versions(text), {"a": "2:1-1", "b": "3"})

    def test_needed_libraries(self):
        line = " 0x0000000000000001 (NEEDED)             Shared library: [librdmacm.so.1]\n"
        self.assertEqual(packages.parse_needed(line), ["librdmacm.so.1"])

    def test_a_name_of_two_nodes_is_two_names(self):
        self.assertEqual(packages.parse_status(STATUS), {
            "ibv_b@IBVERBS_PRIVATE_34", "ibv_b@IBVERBS_PRIVATE_57", "ibv_c@IBVERBS_1.0"})

    def test_ldd_gives_libraries_and_our_names_only(self):
        self.assertEqual(packages.parse_ldd(LDD), (
            ["libfoo.so.1"], ["RDMACM_9.9", "ibv_new", "rdma_new"]))

    def test_a_cell_lists_a_few_names(self):
        self.assertEqual(packages.shortened([]), "-")
        self.assertEqual(packages.shortened(["b@V", "a@V", "c@V", "d@V"]), "`a`, `b`, `c`, `d`")
        self.assertEqual(packages.shortened(["b", "a", "c", "d", "e"]), "`a`, `b`, `c`, `d` and 1 more")

    def test_the_four_results(self):
        self.assertEqual(packages.loads(package()), "yes")
        self.assertEqual(packages.loads(package(missing={"ibv_x@V"}, libraries=["l"])), "no: `ibv_x`")
        self.assertEqual(packages.loads(package(libraries=["l.so.1"])), "not tried: needs `l.so.1`")
        self.assertEqual(packages.loads(package(problem="the package is unavailable")),
                         "not tried: the package is unavailable")
        self.assertEqual(packages.loads(package(files=[])),
                         "not tried: no file needs the libraries")

    def test_the_page_has_a_row_for_each_package(self):
        text = packages.page([package(), package(name="q", version="", files=[], problem="gone")],
                             packages.parse_runs("# c\np //a:b_test\n"), "Debian X", "44")
        self.assertIn("| p | 1 | 1 | yes | `//a:b_test` | - |\n", text)
        self.assertIn("| q | - | 0 | not tried: gone | - | - |\n", text)
        self.assertIn("Of 2 packages, 1 yes, 0 no, 1 not tried.", text)

    def test_the_table_of_runs_is_readable(self):
        with open(os.path.join(os.path.dirname(packages.__file__), "runs.txt")) as table:
            self.assertTrue(all(test.startswith(("//", "tools/")) for test in
                                packages.parse_runs(table.read()).values()))


if __name__ == "__main__":
    unittest.main()
