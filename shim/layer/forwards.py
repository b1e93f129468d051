#!/usr/bin/env python3
"""Generates the entry points of a forwarding library from lists of names with versions (abi.txt).

forwards.py LIST...    prints a C++ source: one jump per name, and the table kForwards

An entry point jumps to the address in its slot of rdmaemu_layer_slots. It changes no register that
holds an argument, so it forwards functions of any signature. `name@@NODE` is the version that a
linker takes. `name@NODE` is an older version. The version script defines the nodes.
"""
import sys

# These names are variables, not functions. verbs_layer.cc defines them.
DATA = {"verbs_allow_disassociate_destroy"}

ENTRY = """asm(R"(
  .text
  .p2align 4
  .globl {symbol}
  .type {symbol}, %function
{symbol}:
)" RDMAEMU_LAYER_JUMP({index}) R"(
  .size {symbol}, .-{symbol}
{version})");
"""


def names_in(paths):
    for path in paths:
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                name, _, version = line.strip().partition("@")
                if name and name not in DATA:
                    yield name, version.lstrip("@"), version.startswith("@")


def main():
    names = list(names_in(sys.argv[1:]))
    print("// Made by forwards.py; do not edit.")
    print('#include "shim/layer/forward.h"\n')
    print('extern "C" { __attribute__((visibility("hidden"))) void* rdmaemu_layer_slots[%d]; }\n'
          % len(names))
    for index, (name, version, is_default) in enumerate(names):
        symbol = name if is_default else "rdmaemu_layer_old_%s_%s" % (name, version.replace(".", "_"))
        # The private nodes share their names (private_nodes.h), so the version script lacks them.
        is_scripted = is_default and not version.startswith("IBVERBS_PRIVATE")
        directive = "" if is_scripted else "  .symver %s, %s%s%s\n" % (
            symbol, name, "@@@" if is_default else "@", version)
        print(ENTRY.format(symbol=symbol, index=index, version=directive))
    print("namespace rdmaemu::layer {\n\nconst Forward kForwards[] = {")
    for name, version, is_default in names:
        print('    {"%s", "%s", %s},' % (name, version, "true" if is_default else "false"))
    print("};\nconst unsigned kForwardCount = %d;\n\n}  // namespace rdmaemu::layer" % len(names))


main()
