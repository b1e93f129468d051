"""Finds, loads and calls librdmaemu.so.1."""

from __future__ import annotations

import ctypes
import enum
import errno
import functools
import os
import pathlib
from typing import Any, Optional

LIBRARY = "librdmaemu.so.1"
VERBS_LIBRARIES = ("libibverbs.so.1", "librdmacm.so.1")  # in this order: the second one needs the first
BACKEND_VARIABLE = "RDMAEMU_BACKEND"
DIRECTORY_VARIABLE = "RDMAEMU_LIBRARY_DIR"

_NOT_INSTALLED = ("cannot load %s: %s; install rdmaemu with `rdmaemu install --prefix DIR`, or name the "
                  "directory of its libraries in " + DIRECTORY_VARIABLE)

# The sizes of struct rdmaemu_rule's members.
NAME_BYTES, PLACE_BYTES, ACTION_BYTES = 132, 64, 252


class Error(OSError):
    """A function of rdmaemu.h failed: `errno` is its errno, `strerror` is rdmaemu_last_error()."""

    def __str__(self) -> str:
        code = errno.errorcode.get(self.errno or 0, str(self.errno))
        return "%s (%s)" % (self.strerror, code)


class Backend(enum.Enum):
    """The kind of devices that the process uses. The environment variable RDMAEMU_BACKEND names
    it."""

    EMBEDDED = "embedded"  # hosts inside this process; the default
    HOST = "host"          # the host process that serves this process (`rdmaemu run`)
    SYSTEM = "system"      # the machine's own devices


def backend() -> Backend:
    """Returns the backend that the environment asks for. Raises ValueError for an unknown one."""
    name = os.environ.get(BACKEND_VARIABLE) or Backend.EMBEDDED.value
    try:
        return Backend(name)
    except ValueError:
        raise ValueError("%s is \"%s\"; use %s" % (
            BACKEND_VARIABLE, name, ", ".join(each.value for each in Backend))) from None


class DeviceStruct(ctypes.Structure):
    """struct rdmaemu_device."""

    _fields_ = [("name", ctypes.c_char_p), ("profile", ctypes.c_char_p),
                ("addresses", ctypes.c_char_p)]


class RuleStruct(ctypes.Structure):
    """struct rdmaemu_rule."""

    _fields_ = [("name", ctypes.c_char * NAME_BYTES), ("at", ctypes.c_char * PLACE_BYTES),
                ("does", ctypes.c_char * ACTION_BYTES), ("matched", ctypes.c_uint64),
                ("fired", ctypes.c_uint64)]


_TEXT, _U64, _SIZE, _ANY = ctypes.c_char_p, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p

# The arguments of each function. All functions but two return int.
_ARGUMENTS: dict[str, list[Any]] = {
    "rdmaemu_last_error": [],
    "rdmaemu_open": [_ANY],
    "rdmaemu_close": [],
    "rdmaemu_host_add": [_ANY],
    "rdmaemu_host_enter": [_TEXT],
    "rdmaemu_host_entered": [_TEXT, _SIZE],
    "rdmaemu_host_remove": [_TEXT],
    "rdmaemu_now": [],
    "rdmaemu_advance": [_U64],
    "rdmaemu_run_until_idle": [],
    "rdmaemu_wait": [_U64],
    "rdmaemu_rule_add": [_TEXT, _TEXT, _SIZE],
    "rdmaemu_rule_remove": [_TEXT],
    "rdmaemu_rules_clear": [],
    "rdmaemu_rule_release": [_TEXT],
    "rdmaemu_rule_wait": [_TEXT, _U64, _U64],
    "rdmaemu_rules": [ctypes.POINTER(RuleStruct), _SIZE],
    "rdmaemu_rule_places": [_TEXT, _TEXT, _SIZE],
    "rdmaemu_rule_faults": [_TEXT, _TEXT, _SIZE],
    "rdmaemu_device_remove": [_TEXT],
    "rdmaemu_device_add": [_TEXT, _TEXT],
    "rdmaemu_port_set": [_TEXT, ctypes.c_int],
    "rdmaemu_address_add": [_TEXT, _TEXT],
    "rdmaemu_address_remove": [_TEXT],
    "rdmaemu_address_move": [_TEXT, _TEXT],
    "rdmaemu_timeline": [_TEXT, _SIZE],
    "rdmaemu_report": [_TEXT, _TEXT, _TEXT, _SIZE],
}
_RESULTS = {"rdmaemu_last_error": _TEXT, "rdmaemu_now": ctypes.c_int64}


_MAX_WAIT_S = 86_400  # one day, as in the library

# The functions that need neither a host nor devices.
_OF_LIBRARY_ALONE = {"rdmaemu_rule_places", "rdmaemu_rule_faults"}


def library_directory() -> pathlib.Path:
    """Returns the directory of rdmaemu's libraries.

    The environment variable RDMAEMU_LIBRARY_DIR names it. Without the variable it is lib/rdmaemu of
    the prefix that contains this package, in lib/python3 or lib/python3/dist-packages.
    """
    named = os.environ.get(DIRECTORY_VARIABLE)
    if named:
        return pathlib.Path(named)
    lib = pathlib.Path(__file__).resolve().parents[2]
    if not (lib / "rdmaemu" / LIBRARY).exists() and (lib.parent / "rdmaemu" / LIBRARY).exists():
        lib = lib.parent
    return lib / "rdmaemu"


def is_preloaded() -> bool:
    """Returns whether this Python was started with librdmaemu.so.1 in LD_PRELOAD.

    The C library's waits (select, poll, epoll, sleep, locks) run embedded hosts only with the
    preload: a library that is loaded later cannot replace the C library's functions.
    """
    return hasattr(ctypes.CDLL(None), "rdmaemu_open")


def is_verbs_ours() -> bool:
    """Returns whether the process's libibverbs.so.1 is rdmaemu's."""
    try:
        found = ctypes.CDLL(VERBS_LIBRARIES[0], mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return False
    return hasattr(found, "rdmaemu_client_embed")


def take_over() -> None:
    """Loads rdmaemu's libibverbs and librdmacm, so that modules loaded later use them.

    The loader finds a loaded library by its SONAME, whatever its directory. Libraries that
    LD_LIBRARY_PATH names have priority: `rdmaemu run` puts rdmaemu's there. Has no effect when the
    process has already loaded a libibverbs.so.1; Host then reports the reason if that library is
    wrong.
    """
    if _is_loaded(VERBS_LIBRARIES[0]):
        return
    for name in VERBS_LIBRARIES:
        path = name if _is_in_library_path(name) else str(library_directory() / name)
        try:
            ctypes.CDLL(path)
        except OSError as error:
            raise ImportError(_NOT_INSTALLED % (path, error)) from None


def _is_loaded(name: str) -> bool:
    try:
        ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return False
    return True


def _is_in_library_path(name: str) -> bool:
    directories = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    return any(os.path.exists(os.path.join(each, name)) for each in directories if each)


@functools.lru_cache(maxsize=None)
def _library() -> ctypes.CDLL:
    if is_preloaded():
        library = ctypes.CDLL(None)
    else:
        path = library_directory() / LIBRARY
        try:
            library = ctypes.CDLL(str(path))
        except OSError as error:
            raise Error(errno.ENOENT, _NOT_INSTALLED % (path, error)) from None
    return library


@functools.lru_cache(maxsize=None)
def _function(name: str) -> Any:
    function = getattr(_library(), name)
    function.argtypes = _ARGUMENTS[name]
    function.restype = _RESULTS.get(name, ctypes.c_int)
    return function


def call(name: str, *arguments: Any) -> int:
    """Calls a function of rdmaemu.h and returns its result. Raises Error for a negative one."""
    if name not in _OF_LIBRARY_ALONE and backend() is Backend.SYSTEM:
        raise Error(errno.ENOTSUP, "%s needs the emulator, and %s is \"%s\"" %
                    (name, BACKEND_VARIABLE, Backend.SYSTEM.value))
    result = int(_function(name)(*arguments))
    if result < 0:
        raise Error(-result, _function("rdmaemu_last_error")().decode(errors="replace"))
    return result


def encoded(text: Optional[str], what: str) -> Optional[bytes]:
    """Returns the text as a C string, None for None. Raises TypeError, or ValueError for a NUL."""
    if text is None:
        return None
    if not isinstance(text, str):
        raise TypeError("%s must be a str, not %s" % (what, type(text).__name__))
    if "\0" in text:
        raise ValueError("%s has a NUL character: %r" % (what, text))
    return text.encode()


def unsigned(value: Any, what: str, most: int = (1 << 64) - 1) -> int:
    """Returns the integer. Raises ValueError unless it is an integer from 0 to `most`, because
    ctypes checks nothing."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise ValueError("%s must be an integer from 0 to %d, not %r" % (what, most, value))
    return value


def milliseconds(seconds: float, what: str) -> int:
    """Returns the time in milliseconds, at most _MAX_WAIT_S seconds. Raises ValueError for a
    negative time."""
    if not seconds >= 0:
        raise ValueError("%s must be 0 or more seconds, not %r" % (what, seconds))
    return round(min(seconds, _MAX_WAIT_S) * 1000)
