# shellcheck shell=bash disable=SC2034
# The Debian packages that this project needs, and their installation. tools/quickstart, tools/test
# and tools/rdmaemu source this file. docs/dependencies.md gives the reason for each package.

packages_build=(
  bazel-bootstrap g++ python3
  libibverbs-dev librdmacm-dev
  libexpected-dev libisal-dev libtomlplusplus-dev nlohmann-json3-dev libcli11-dev libfuse3-dev
)
packages_quickstart=(rdmacm-utils)
packages_test=(
  libgtest-dev libgmock-dev catch2 doctest-dev libevent-dev libbenchmark-dev make cmake pkg-config
  rdmacm-utils ibverbs-utils perftest qperf tshark iproute2 clang-format help2man valgrind
  python3-pytest python3-pyverbs python3-jsonschema
  ucx-utils openmpi-bin libopenmpi-dev libfabric-bin infiniband-diags hwloc-nox chromium
)

# Needed by `tools/rdmaemu install` for its man pages.
packages_install=(help2man)
packages_fuzz=(clang libclang-rt-dev lld llvm)
packages_softroce=(qemu-system-x86 ibverbs-providers rdmacm-utils perftest iproute2 xz-utils)
# Needed by the siw module, for tools/softroce --siw, its benchmark and its test.
packages_softroce_siw=(gcc-12 make libelf1)

# packages_missing PACKAGE...: prints those that are not installed, one per line. Debian 13 renamed
# libraries whose ABI contains time_t: libelf1 is libelf1t64 there, and apt-get takes both names.
packages_missing() {
  local package name
  for package in "$@"; do
    for name in "$package" "${package}t64"; do
      [[ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" == installed ]] &&
        continue 2
    done
    echo "$package"
  done
}

# packages_ensure PACKAGE...: installs missing packages, as root or with sudo. If neither is
# possible, prints the names of the packages and returns 1. Prints nothing if nothing is missing.
packages_ensure() {
  if ! command -v dpkg-query >/dev/null; then
    echo "error: this is not a Debian system (no dpkg-query); install by hand: $*" >&2
    return 1
  fi
  local missing=()
  mapfile -t missing < <(packages_missing "$@")
  ((${#missing[@]})) || return 0

  local as_root=()
  if ((EUID != 0)); then
    if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 && -t 2 ]]; }; then
      as_root=(sudo)
    else
      echo "error: packages are missing and there is no root access to install them;" \
        "as root, run: apt-get install ${missing[*]}" >&2
      return 1
    fi
  fi
  echo "installing: ${missing[*]}" >&2
  # tshark's package asks whether ordinary users may capture. Nothing here captures from a device.
  local install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive
    apt-get install -y -qq --no-install-recommends "${missing[@]}")
  # A new machine has no package lists yet, and old lists name deleted files.
  if ! "${install[@]}" >/dev/null 2>&1; then
    "${as_root[@]}" apt-get update -qq >/dev/null || true
    "${install[@]}" >/dev/null || {
      echo "error: apt-get could not install ${missing[*]}; see its message above" >&2
      return 1
    }
  fi
}
