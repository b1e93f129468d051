"""Each source includes the headers of the standard library that it uses, itself or by headers of
this project. The standard headers that another standard header includes differ between compilers.
GCC 14 includes fewer than GCC 12, so a build may succeed with one compiler and fail with the
other."""

import functools
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import emulated  # noqa: E402
import purity  # noqa: E402
from emulated import Failure  # noqa: E402

FOLDERS = ["emulator", "shim", "tools", "tests", "bench"]
# Each use, and the headers of which one must be included. Not listed: names that every container's
# header declares (std::move, std::pair, std::byte, std::less).
USES = [(re.compile(use), headers.split()) for use, headers in (
    (r"\bfor \([^;()]*: \{|\bstd::initializer_list\b", "initializer_list"),
    (r"\bu?int(?:8|16|32|64|ptr)_t\b|\bU?INT(?:8|16|32|64)_(?:MAX|MIN)\b", "cstdint stdint.h"),
    (r"\bstd::(?:min|max|clamp|minmax|sort|find|find_if|any_of|all_of|none_of|copy|copy_n|fill|equal|"
     r"lower_bound|upper_bound|count_if|reverse|transform|max_element|min_element|search)\(|"
     r"\bstd::ranges::", "algorithm"),
    (r"\bstd::(?:unique_ptr|shared_ptr|weak_ptr|make_unique|make_shared)\b", "memory"),
    (r"\bstd::(?:optional|nullopt)\b", "optional"),
    (r"\bstd::array\b", "array"),
    (r"\bstd::span\b", "span"),
    (r"\bstd::string\b|\bstd::to_string\b", "string"),
    (r"\bstd::string_view\b", "string_view string"),
    (r"\bstd::function\b", "functional"),
    (r"\bstd::(?:multi)?map\b", "map"),
    (r"\bstd::(?:multi)?set\b", "set"),
    (r"\bstd::vector\b", "vector"),
    (r"\bstd::deque\b", "deque"),
    (r"\bstd::unordered_map\b", "unordered_map"),
    (r"\bstd::(?:variant|holds_alternative|visit)\b", "variant"),
    (r"\bstd::(?:tuple|tie|make_tuple)\b", "tuple"),
    (r"\bstd::atomic(?:_ref)?\b|\bstd::memory_order", "atomic"),
    (r"\bstd::numeric_limits\b", "limits"),
    (r"\bstd::(?:bit_ceil|bit_floor|has_single_bit|countr_zero|countl_zero|popcount|bit_cast)\b",
     "bit"),
    (r"\bstd::(?:memcpy|memset|memcmp|strlen|strerror)\b", "cstring"),
    (r"\bstd::(?:o|i)?stringstream\b", "sstream"),
    (r"\bstd::(?:o|i)?fstream\b", "fstream"),
    (r"\bstd::chrono::", "chrono"),
    (r"\bstd::(?:from_chars|to_chars)\b", "charconv"),
    (r"\bstd::(?:accumulate|iota)\b", "numeric"),
    (r"\bstd::(?:runtime_error|logic_error|invalid_argument)\b", "stdexcept"),
    (r"\bstd::is(?:alnum|alpha|digit|print|space)\b", "cctype"),
    (r"\bstd::(?:thread|jthread)\b", "thread"),
    (r"\bstd::(?:mutex|lock_guard|unique_lock|scoped_lock)\b", "mutex"),
)]
# Headers that other headers include by the standard, by their documentation, or for their types:
# the uapi and the verbs, and Google's tests.
BRING = {
    "vector": ["initializer_list"], "string": ["initializer_list", "string_view"],
    "map": ["initializer_list"], "set": ["initializer_list"], "deque": ["initializer_list"],
    "array": [], "algorithm": ["initializer_list"], "utility": ["initializer_list"],
    "unordered_map": ["initializer_list"], "span": ["array"], "future": ["chrono"],
    "infiniband/verbs.h": ["stdint.h"], "rdma/rdma_cma.h": ["stdint.h"],
    "rdma/rdma_user_rxe.h": ["stdint.h"], "linux/types.h": ["stdint.h"],
    "netinet/in.h": ["stdint.h"], "nlohmann/json.hpp": ["string", "vector", "map", "cstdint"],
    "toml++/toml.h": ["string", "string_view", "optional", "cstdint"],
    "gtest/gtest.h": ["string", "vector", "map", "set", "tuple", "memory", "cstdint"],
    "gmock/gmock.h": ["string", "vector", "map", "set", "tuple", "memory", "cstdint"],
    "rdmaemu/rdmaemu.h": ["stdint.h"], "rdmaemu/testing.h": ["string", "chrono", "cstdint"],
}
PUBLIC = "emulator/include"


@functools.lru_cache(maxsize=None)
def brought_by(path):
    """Returns all standard headers that the file includes, directly or by headers of this
    project."""
    found = set()
    for _, line in purity.code_lines(path):
        header = purity.included(line)
        if header is None:
            continue
        found.add(header)
        found.update(BRING.get(header, []))
        for own in (header, os.path.join(PUBLIC, header)):
            if os.path.exists(own):
                found |= brought_by(own)
    return frozenset(found)


def each_source_includes_what_it_uses():
    found = []
    for path in purity.sources(FOLDERS):
        headers = brought_by(path)
        for number, line in purity.code_lines(path):
            if purity.included(line) is not None:
                continue
            for use, wanted in USES:
                match = use.search(line)
                if match and not headers.intersection(wanted):
                    found.append("%s:%d uses %s without <%s>" % (
                        path, number, match.group(0), wanted[0]))
    purity.report(found, "what is used is included")


def the_rule_finds_what_it_is_for():
    source = "for (const int each : {1, 2}) uint32_t x = std::min(1, 2);"
    if sum(1 for use, _ in USES if use.search(source)) != 3:
        raise Failure("the table of uses does not match: " + source)


def main():
    os.chdir(os.environ.get("RDMA_TEST_CHECKOUT") or os.path.dirname(
        os.path.dirname(os.path.dirname(os.path.realpath(__file__)))))
    return emulated.run_cases("includes", [(f.__name__, f) for f in (
        the_rule_finds_what_it_is_for, each_source_includes_what_it_uses)])


if __name__ == "__main__":
    sys.exit(main())
