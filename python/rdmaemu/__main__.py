"""python3 -m rdmaemu: starts Python so that all of its waits run embedded hosts.

    python3 -m rdmaemu pytest ARGUMENTS...    as python3 -m pytest ARGUMENTS...
    python3 -m rdmaemu ARGUMENTS...           as python3 ARGUMENTS...: a script, -m MODULE, -c CODE
    python3 -m rdmaemu env                    prints the environment as shell exports

It puts rdmaemu's libraries before the machine's (LD_LIBRARY_PATH), preloads librdmaemu.so.1
(LD_PRELOAD), and becomes the program: signals and exit status are the program's. With
RDMAEMU_BACKEND=host or =system the environment stays as it is.
"""

from __future__ import annotations

import os
import shlex
import sys
from typing import NoReturn

from rdmaemu._library import LIBRARY, Backend, backend, library_directory


def environment() -> dict[str, str]:
    """Returns the variables that make waits run embedded hosts. Their earlier values follow after
    rdmaemu's."""
    if backend() is not Backend.EMBEDDED:
        return {}
    directory = library_directory()
    library = directory / LIBRARY
    if not library.exists():
        sys.exit("error: there is no %s; install rdmaemu with `rdmaemu install --prefix DIR`" % library)

    def with_first(variable: str, first: str) -> str:
        rest = [each for each in os.environ.get(variable, "").split(":") if each not in ("", first)]
        return ":".join([first, *rest])

    return {"LD_LIBRARY_PATH": with_first("LD_LIBRARY_PATH", str(directory)),
            "LD_PRELOAD": with_first("LD_PRELOAD", str(library))}


def main(arguments: list[str]) -> NoReturn:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__)
        sys.exit(0 if arguments else 2)
    changes = environment()
    if arguments == ["env"]:
        for name, value in changes.items():
            print("export %s=%s" % (name, shlex.quote(value)))
        sys.exit(0)
    if arguments[0] == "pytest":
        arguments = ["-m", *arguments]
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, *arguments], {**os.environ, **changes})


if __name__ == "__main__":
    main(sys.argv[1:])
