# shellcheck shell=bash
# Debian's kernel for the machine: fetched with apt, unpacked into a cache, never installed. Sourced
# by tools/softroce; needs no root.

# Of the kernel's modules, those that a machine for RDMA can want: all else stays out of the cache.
kernel_module_folders=(
  net lib crypto arch/x86/crypto drivers/infiniband drivers/virtio drivers/block/virtio_blk.ko
  drivers/char/virtio_console.ko drivers/char/hw_random drivers/net/bonding drivers/net/dummy.ko
  drivers/net/veth.ko drivers/net/ifb.ko drivers/net/virtio_net.ko drivers/net/net_failover.ko
  drivers/net/macvlan.ko drivers/net/vxlan fs/9p fs/netfs fs/fscache fs/overlayfs fs/configfs
)
# What the first program in the machine needs before it sees this machine's files.
kernel_boot_modules=(virtio_pci virtio_console 9pnet_virtio 9p overlay)

say() {
  echo "softroce: $*" >&2
}

# apt_with KIND TOOL ARGUMENT...: apt with the system's package lists, or with lists of our own,
# which an ordinary user can bring up to date.
apt_with() {
  local kind=$1 tool=$2 own=$kernel_cache/apt
  shift 2
  local options=(-o APT::Sandbox::User="$(id -un)")
  if [[ $kind == own ]]; then
    mkdir -p "$own"/lists/partial "$own"/cache/archives/partial
    options+=(-o Dir::State::Lists="$own/lists" -o Dir::Cache="$own/cache")
  fi
  "$tool" "${options[@]}" "$@"
}

# kernel_find KIND: sets kernel_image to the newest 6.1 kernel's package and kernel_version to its
# version; fails when the package lists know none.
kernel_find() {
  kernel_image=$(apt_with "$1" apt-cache pkgnames linux-image-6.1. 2>/dev/null |
    grep -E '^linux-image-6\.1\.[0-9]+-[0-9]+-amd64$' | sort -V | tail -1) || return 1
  kernel_version=$(apt_with "$1" apt-cache show --no-all-versions "$kernel_image" |
    sed -n 's/^Version: //p')
  [[ -n $kernel_version ]]
}

# own_lists: fetches package lists that need no root.
own_lists() {
  say "fetching package lists of our own (20 MB)"
  apt_with own apt-get -qq -o APT::Update::Error-Mode=any update >&2 || fail "apt-get update failed; is the network there?"
}

# fetch_and_unpack DIRECTORY PACKAGE[=VERSION]...: unpacks into DIRECTORY; the .deb files do not stay.
fetch_and_unpack() {
  local into=$1 debs package
  shift
  debs=$(mktemp -d "$kernel_cache/debs.XXXXXX")
  if ! (cd "$debs" && apt_with "$kernel_lists" apt-get -qq download "$@") >"$debs/log" 2>&1; then
    cat "$debs/log" >&2
    [[ $kernel_lists == system ]] || fail "apt-get could not download $*; is the network there?"
    # Old lists name files that the archive no longer has.
    own_lists
    exec {kernel_lock}>&-
    SOFTROCE_LISTS=own exec "$0" "${softroce_arguments[@]}"
  fi
  for package in "$debs"/*.deb; do
    dpkg -x "$package" "$into"
  done
  rm -rf "$debs"
}

# number_at FILE OFFSET BYTES: a little-endian number.
number_at() {
  od -An -t "u$3" -j "$(($2))" -N "$3" "$1" | tr -d ' '
}

# extract_vmlinux VMLINUZ OUTPUT: the ELF image inside, which boots without unpacking itself under
# emulation. Offsets: the kernel's Documentation/x86/boot.rst.
extract_vmlinux() {
  local begin length
  begin=$((($(number_at "$1" 0x1f1 1) + 1) * 512 + $(number_at "$1" 0x248 4)))
  length=$(($(number_at "$1" 0x24c 4) - 4)) # the last four bytes are the unpacked size
  head -c "$((begin + length))" "$1" | tail -c "$length" | xz -dc >"$2" ||
    fail "the kernel in $1 is not packed with xz as Debian's are"
}

# make_initramfs DIRECTORY RELEASE BUSYBOX: DIRECTORY/initramfs, with what is needed to mount the
# host's files.
make_initramfs() {
  local directory=$1 release=$2 busybox=$3 tree=$1/tree modules file name
  modules=$directory/lib/modules/$release
  mkdir -p "$tree"/{bin,proc,sys,dev,host,changes,root,"lib/modules/$release"}
  cp "$busybox" "$tree/bin/busybox"
  install -m 755 "$parts/init" "$tree/init"
  cp "$modules"/modules.{dep,alias,symbols} "$tree/lib/modules/$release/"
  for name in "${kernel_boot_modules[@]}"; do
    for file in $(sed -n "s#^\(.*/$name\.ko\):#\1#p" "$modules/modules.dep"); do
      (cd "$directory" && cp --parents "lib/modules/$release/$file" "$tree")
    done
  done
  (cd "$tree" && find . | "$busybox" cpio -o -H newc 2>/dev/null) >"$directory/initramfs"
  rm -rf "$tree"
}

# kernel_build DIRECTORY: fills it with vmlinux, initramfs, busybox and lib/modules.
kernel_build() {
  local directory=$1 unpacked=$1/unpacked release=${kernel_image#linux-image-} folder from
  say "fetching $kernel_image $kernel_version (72 MB), once"
  fetch_and_unpack "$unpacked" "$kernel_image=$kernel_version" busybox-static
  say "unpacking the kernel and packing an initramfs"
  extract_vmlinux "$unpacked/boot/vmlinuz-$release" "$directory/vmlinux"
  mv "$unpacked/bin/busybox" "$directory/busybox"
  from=$unpacked/lib/modules/$release
  for folder in "${kernel_module_folders[@]}"; do
    [[ -e $from/kernel/$folder ]] || continue
    mkdir -p "$directory/lib/modules/$release/kernel/$(dirname "$folder")"
    mv "$from/kernel/$folder" "$directory/lib/modules/$release/kernel/$folder"
  done
  cp "$from"/modules.{order,builtin} "$directory/lib/modules/$release/"
  rm -rf "$unpacked"
  "$directory/busybox" depmod -b "$directory" "$release"
  make_initramfs "$directory" "$release" "$directory/busybox"
}

# in_cache NAME FUNCTION: runs FUNCTION on a new directory that becomes NAME in the cache when it is
# complete. Two runs at once wait for each other.
in_cache() {
  local name=$1 work
  shift
  [[ -d $kernel_cache/$name ]] && return
  exec {kernel_lock}>"$kernel_cache/lock"
  flock "$kernel_lock"
  if [[ ! -d $kernel_cache/$name ]]; then
    rm -rf "$kernel_cache"/{work,debs}.* # an interrupted run's
    # Earlier kernels, not used for a month.
    find "$kernel_cache" -mindepth 1 -maxdepth 1 -name '6.1.*' -mtime +30 -exec rm -rf {} +
    work=$(mktemp -d "$kernel_cache/work.XXXXXX")
    "$@" "$work"
    chmod 755 "$work"
    mv "$work" "$kernel_cache/$name"
  fi
  exec {kernel_lock}>&-
}

# kernel_ensure: sets kernel_directory, which holds what the machine boots from.
kernel_ensure() {
  [[ $(uname -m) == x86_64 ]] || fail "the machine is x86-64's, and this is $(uname -m)"
  kernel_cache=${XDG_CACHE_HOME:-$HOME/.cache}/rdmaemu/softroce
  mkdir -p "$kernel_cache" || fail "cannot write to $kernel_cache; set XDG_CACHE_HOME"
  kernel_lists=${SOFTROCE_LISTS:-system}
  if ! kernel_find "$kernel_lists"; then
    kernel_lists=own
    kernel_find own || own_lists
    kernel_find own ||
      fail "no linux-image-6.1.*-amd64 among the packages; Debian 12's archive (with -security) has \
it: is it in /etc/apt/sources.list?"
  fi
  local hash
  hash=$(cat "$parts"/{kernel.sh,init} | sha256sum | head -c 8)
  kernel_name=${kernel_image#linux-image-}-${kernel_version//[^0-9A-Za-z.+-]/_}-$hash
  in_cache "$kernel_name" kernel_build
  kernel_directory=$kernel_cache/$kernel_name
  touch "$kernel_directory"
  kernel_release=${kernel_image#linux-image-}
}

# siw_build DIRECTORY: siw.ko, from the source and headers of the same kernel.
siw_build() {
  local directory=$1 unpacked=$1/unpacked source=drivers/infiniband/sw/siw headers
  # Archives keep one revision of the build tools, which may be newer than the newest kernel.
  local tools=linux-kbuild-6.1=$kernel_version
  [[ -n $(apt_with "$kernel_lists" apt-cache show "$tools" 2>/dev/null) ]] || tools=linux-kbuild-6.1
  packages_ensure "${packages_softroce_siw[@]}" || exit 2
  say "fetching the kernel's source and headers (152 MB), once"
  fetch_and_unpack "$unpacked" "linux-source-6.1=$kernel_version" \
    "linux-headers-$kernel_release=$kernel_version" \
    "linux-headers-${kernel_release%-amd64}-common=$kernel_version" \
    "$tools"
  say "compiling siw for $kernel_release"
  xz -dc "$unpacked/usr/src/linux-source-6.1.tar.xz" |
    tar -x -C "$unpacked" --strip-components=4 "linux-source-6.1/$source"
  headers=$unpacked/usr/src/linux-headers-$kernel_release
  sed -i "s#/usr/src/#$unpacked/usr/src/#" "$headers/Makefile"
  make -C "$headers" M="$unpacked/siw" CONFIG_RDMA_SIW=m modules >"$unpacked/log" 2>&1 || {
    cat "$unpacked/log" >&2
    fail "siw did not compile, see above"
  }
  strip -g -o "$directory/siw.ko" "$unpacked/siw/siw.ko"
  rm -rf "$unpacked"
}

# kernel_ensure_siw: sets kernel_siw.
kernel_ensure_siw() {
  in_cache "$kernel_name-siw" siw_build
  kernel_siw=$kernel_cache/$kernel_name-siw/siw.ko
  touch "${kernel_siw%/*}"
}
