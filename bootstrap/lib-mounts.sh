# shellcheck shell=bash
# Shared file systems: one line each in /etc/fstab, mounted from their own server, proven by a write. Sourced by the steps that mount.

# shellcheck disable=SC2034  # the steps append it to their own options
readonly WAIT_FOR_NETWORK=_netdev,x-systemd.automount,x-systemd.requires=network-online.target

# mount_one TYPE MOUNT SOURCE OPTIONS
mount_one() {
  local type=$1 mount=$2 source=$3 line
  line="$source $mount $type $4 0 0"
  if ! grep -qxF -- "$line" /etc/fstab 2>/dev/null; then
    would "add $mount to /etc/fstab" || {
      write_fstab "$mount" "$line"
      systemctl daemon-reload
      changed "added $mount to /etc/fstab"
    }
  fi
  trigger_automount "$mount"
  if [[ $(source_of "$type" "$mount") != "$source" ]]; then
    would "mount $mount" || {
      mkdir -p "$mount"
      retry 5 "mounting $mount" mount "$mount"
      changed "mounted $mount"
    }
  fi
}

# trigger_automount MOUNT: after a reboot systemd mounts it on first access; mounting it again with mount would fail.
trigger_automount() {
  local waits
  waits=$(findmnt -n -t autofs -o TARGET --mountpoint "$1" 2>/dev/null || true)
  [[ -z $waits ]] || timeout 60 ls "$1/." >/dev/null 2>&1 || true
}

# Replaces the line of this mount point, so that there is never a second line.
write_fstab() {
  local mount=$1 line=$2
  {
    [[ ! -f /etc/fstab ]] || awk -v mount="$mount" '$1 ~ /^#/ || $2 != mount' /etc/fstab
    printf '%s\n' "$line"
  } >/etc/fstab.gpuinfra-new
  mv -f -- /etc/fstab.gpuinfra-new /etc/fstab
}

# source_of TYPE MOUNT: prints the mounted source. NFS 4 has the type nfs4, even if fstab contains nfs.
source_of() {
  local types=$1
  [[ $types != nfs ]] || types=nfs,nfs4
  findmnt -n -t "$types" -o SOURCE --mountpoint "$2" 2>/dev/null | sed -n 1p || true
}

# prove_mount TYPE MOUNT SOURCE: proves that SOURCE is mounted on MOUNT and that a write can be read back.
prove_mount() {
  local mount=$2 source=$3 found probe word
  found=$(source_of "$1" "$mount")
  [[ $found == "$source" ]] || die "$mount is mounted from ${found:-nothing}, expected $source"
  probe=$mount/.gpuinfra-$(uname -n)-$$
  word="written at $(date -u +%FT%TZ)"
  printf '%s\n' "$word" >"$probe" || die "$mount does not accept a write"
  sync "$probe" 2>/dev/null || sync
  [[ $(<"$probe") == "$word" ]] || die "$mount returns other data than was written"
  rm -f -- "$probe"
}
