# shellcheck shell=bash
# Installs the packages in a fresh root directory, tries them and removes them. tools/package sources
# this file. Uses the variables work, out and version.
# shellcheck disable=SC2154

check_programs="rdmacm-utils,ibverbs-utils,libisal2,libstdc++6,iproute2,pkg-config,g++,libibverbs-dev,librdmacm-dev,python3"

# in_root COMMAND...: runs a command in the fresh root directory, in namespaces of its own.
in_root() {
  unshare --mount --net --pid --fork --kill-child sh -c '
    mount -t proc proc "$0/proc" && mount -t tmpfs tmpfs "$0/dev/shm" && ip link set lo up &&
    exec chroot "$0" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"' \
    "$fresh" "$@"
}

# files_of_root: the names of all files, except those that dpkg writes about itself.
files_of_root() {
  (cd "$fresh" && find . -xdev -path ./proc -prune -o -path ./var/lib/dpkg -prune -o \
    -path ./var/log -prune -o -path ./var/cache -prune -o -path ./tmp -prune -o -print) | sort
}

# trial PREFIX: a server and a client on two hosts, one fault, and a program of the C API.
trial() {
  cat >"$fresh/root/trial.sh" <<'SCRIPT'
set -e
PATH=$1/bin:$PATH
cd /root
rdmaemu --version
rdmaemu run --host a --address 127.0.1.1 -- rdma_server & server=$!
rdmaemu wait --host a --listening 7471
rdmaemu run --host b --address 127.0.1.2 -- rdma_client -s 127.0.1.1
wait $server
rdmaemu run -- ibv_devinfo -d rxe0 | grep -q PORT_ACTIVE
if rdmaemu run --address 127.0.1.3 -- rdma_client -s 127.0.1.3; then exit 1; fi
cat >trial.c <<'C'
#include <infiniband/verbs.h>
#include <rdmaemu/rdmaemu.h>
int main(void) {
  int count = 0;
  if (rdmaemu_open(0) != 0) return 1;
  ibv_free_device_list(ibv_get_device_list(&count));
  rdmaemu_close();
  return count == 1 ? 0 : 2;
}
C
PKG_CONFIG_PATH=$1/lib/pkgconfig
export PKG_CONFIG_PATH
cc trial.c -o trial $(pkg-config --cflags --libs rdmaemu)
./trial
rm -f trial trial.c
SCRIPT
  in_root sh /root/trial.sh "$1"
  rm -f "$fresh/root/trial.sh"
}

# check_in SUITE: exits with an error if the packages do not work there, or leave something behind.
check_in() {
  local suite=$1 fresh=$work/root-$1
  packages_ensure debootstrap
  echo "checking in a fresh $suite ..." >&2
  debootstrap --variant=minbase --include="$check_programs" "$suite" "$fresh" >"$work/debootstrap.log" 2>&1 ||
    { tail -n 20 "$work/debootstrap.log" >&2; fail "debootstrap of $suite failed, see above"; }
  files_of_root >"$work/before"
  cp "$out/rdmaemu_${version}_amd64.deb" "$out/rdmaemu-dev_${version}_amd64.deb" "$fresh/tmp/"
  in_root sh -c 'dpkg -i /tmp/rdmaemu*.deb' >&2 || fail "$suite refused to install the packages"
  trial /usr >&2 || fail "the installed packages failed in $suite, see above"
  in_root dpkg --purge rdmaemu-dev rdmaemu >&2
  rm -f "$fresh"/tmp/rdmaemu*.deb
  tar -C "$fresh/root" -xf "$out/rdmaemu-$version-x86_64.tar.gz"
  trial "/root/rdmaemu-$version-x86_64" >&2 || fail "the tarball failed in $suite, see above"
  rm -rf "$fresh/root/rdmaemu-$version-x86_64"
  files_of_root >"$work/after"
  diff "$work/before" "$work/after" >&2 || fail "these files stayed behind in $suite"
  echo "$suite: the packages and the tarball work, and leave nothing behind" >&2
  rm -rf "$fresh"
}
