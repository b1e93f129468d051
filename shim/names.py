#!/usr/bin/env python3
"""Prints the names of abi_status.txt, one per line with one version.

names.py STATUS PREFIX    prints the names whose version starts with PREFIX (IBVERBS_, RDMACM_)

NAME@@NODE_34,57 becomes NAME@@NODE_34 and NAME@NODE_57.
"""
import sys


def main():
    path, prefix = sys.argv[1:]
    with open(path, encoding="utf-8") as rows:
        for row in rows:
            name, at, version = row.split(" ")[0].rpartition("@")
            if row.startswith("#") or not version.startswith(prefix):
                continue
            first, *others = version.strip().split(",")
            print(name + at + first)
            stem = first.rpartition("_")[0]
            for number in others:
                print(f"{name.rstrip('@')}@{stem}_{number}")


main()
