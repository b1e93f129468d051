"""The structs and functions of the package are those of rdmaemu.h."""

import ctypes
import os
import re
import subprocess

import pytest
from rdmaemu import _library, _options

STRUCTS = {"rdmaemu_device": _library.DeviceStruct, "rdmaemu_rule": _library.RuleStruct,
           "rdmaemu_options": _options.OptionsStruct}
INCLUDE = os.path.join(os.environ["RDMAEMU_TEST_PREFIX"], "include")


@pytest.fixture
def header():
    with open(os.path.join(INCLUDE, "rdmaemu/rdmaemu.h")) as file:
        return re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)


def members(header, struct):
    """Returns the names of a struct's members: `uint64_t matched, fired;` has two."""
    body = re.search(r"struct %s \{(.*?)\};" % struct, header, re.S).group(1)
    return [re.search(r"(\w+)(\[\d+\])?$", one.strip()).group(1)
            for declaration in body.split(";") if declaration.strip()
            for one in declaration.split(",")]


def measured(header, directory):
    """Returns lines with the offset and size of each member, from a C compiler."""
    lines = ["#include <rdmaemu/rdmaemu.h>", "#include <stdio.h>", "int main(void) {"]
    for struct in STRUCTS:
        lines += ['printf("%s.%s %%zu %%zu\\n", offsetof(struct %s, %s), sizeof(((struct %s*)0)->%s));' % (
            struct, member, struct, member, struct, member) for member in members(header, struct)]
        lines.append('printf("%s 0 %%zu\\n", sizeof(struct %s));' % (struct, struct))
    source, program = str(directory / "layout.c"), str(directory / "layout")
    with open(source, "w") as file:
        file.write("\n".join([*lines, "}"]))
    subprocess.run(["gcc", "-I", INCLUDE, source, "-o", program], check=True)
    return subprocess.run([program], text=True, check=True, stdout=subprocess.PIPE).stdout.splitlines()


def test_structs_have_the_layout_of_the_header(header, tmp_path):
    ours = []
    for name, struct in STRUCTS.items():
        ours += ["%s.%s %d %d" % (name, member[0], getattr(struct, member[0]).offset,
                                  getattr(struct, member[0]).size) for member in struct._fields_]
        ours.append("%s 0 %d" % (name, ctypes.sizeof(struct)))
    assert ours == measured(header, tmp_path)


def test_every_function_of_the_header_is_declared(header):
    functions = set(re.findall(r"\b(rdmaemu_\w+)\(", header))
    assert len(functions) > 20
    assert functions <= set(_library._ARGUMENTS)
