# shellcheck shell=bash
# Boots the machine and runs a command in it. tools/softroce sources this file. Its options are
# these variables: root, parts, out, limit_s, siw, mtu, memory_mib, cpus, accel, and the variables
# of kernel.sh.
# shellcheck disable=SC2034,SC2054,SC2154

# machine_settings: prints the variables that the scripts in the machine read.
machine_settings() {
  local name
  local release=$kernel_release siw=${kernel_siw:-} directory=$PWD
  local rdmaemu_directory=$root/bazel-opt-bin/tools/cli
  [[ -x $rdmaemu_directory/rdmaemu ]] && rdmaemu_directory=$(readlink -f "$rdmaemu_directory") ||
    rdmaemu_directory=
  for name in release siw directory rdmaemu_directory kernel_directory out mtu; do
    printf '%s=%q\n' "$name" "${!name}"
  done
}

# machine_run COMMAND...: exits with the command's status.
machine_run() {
  local control status accelerator
  control=$(mktemp -d "${TMPDIR:-/tmp}/softroce.XXXXXX")
  # shellcheck disable=SC2064
  trap "rm -rf '$control'" EXIT
  if [[ -n $out ]]; then
    mkdir -p "$out" || fail "cannot make the directory $out"
    out=$(readlink -f "$out")
  fi
  machine_settings >"$control/settings"
  { printf 'set --'; printf ' %q' "$@"; echo; } >"$control/command"
  cp "$parts"/{guest,rdma-setup} "$control/"

  accelerator=(-accel tcg,thread=multi -cpu max)
  [[ $accel == kvm ]] && accelerator=(-accel kvm -cpu host)
  local shares=(
    -fsdev "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap"
    -device virtio-9p-pci,fsdev=host,mount_tag=host
    -fsdev "local,id=control,path=${control//,/,,},security_model=none"
    -device virtio-9p-pci,fsdev=control,mount_tag=control
  )
  [[ -n $out ]] && shares+=(-fsdev "local,id=out,path=${out//,/,,},security_model=none"
    -device virtio-9p-pci,fsdev=out,mount_tag=out)
  # setpriv ends the machine when this script ends, even by SIGKILL.
  exec 3> >(cat) 4> >(cat >&2)
  local outputs=$!
  setpriv --pdeathsig TERM timeout --kill-after 5 "$limit_s" setpriv --pdeathsig KILL \
    qemu-system-x86_64 "${accelerator[@]}" -smp "$cpus" -m "$memory_mib" \
    -machine q35 -nodefaults -no-user-config -display none -no-reboot \
    -kernel "$kernel_directory/vmlinux" -initrd "$kernel_directory/initramfs" \
    -append "console=ttyS0 panic=-1 quiet loglevel=4 mitigations=off nokaslr tsc=reliable no_timer_check random.trust_cpu=on" \
    -serial "file:$control/console" "${shares[@]}" \
    -device virtio-serial-pci \
    -add-fd fd=3,set=1 -chardev file,id=stdout,append=on,path=/dev/fdset/1 \
    -device virtserialport,chardev=stdout,name=stdout \
    -add-fd fd=4,set=2 -chardev file,id=stderr,append=on,path=/dev/fdset/2 \
    -device virtserialport,chardev=stderr,name=stderr \
    </dev/null >"$control/qemu.log" 2>&1 &
  local machine=$!
  # shellcheck disable=SC2064
  trap "kill $machine 2>/dev/null" INT TERM HUP
  local ended=0
  wait "$machine" || ended=$?
  exec 3>&- 4>&-
  wait "$outputs" || true

  status=$(cat "$control/status" 2>/dev/null) || status=
  if [[ $status =~ ^[0-9]+$ ]]; then
    exit "$status"
  elif ((ended == 124 || ended == 137)); then
    say "the time of $limit_s s was up; -t SECONDS gives more"
    exit 124
  fi
  tail -n 40 "$control/qemu.log" "$control"/setup.log "$control/console" >&2 2>/dev/null || true
  fail "the machine failed (qemu ended with $ended); its console and its setup's log are above" 125
}
