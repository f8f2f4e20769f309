# shellcheck shell=bash
# Shared file systems: one line each in /etc/fstab, mounted from their own server, proven by a write. Sourced by the steps that mount.

# shellcheck disable=SC2034  # the steps put it behind their own options
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
  wake "$mount"
  if [[ $(source_of "$type" "$mount") != "$source" ]]; then
    would "mount $mount" || {
      mkdir -p "$mount"
      retry 5 "mounting $mount" mount "$mount"
      changed "mounted $mount"
    }
  fi
}

# wake MOUNT: after a reboot systemd mounts it when somebody looks into it, and nobody has yet; mounting it by hand as well would fail.
wake() {
  local waits
  waits=$(findmnt -n -t autofs -o TARGET --mountpoint "$1" 2>/dev/null || true)
  [[ -z $waits ]] || timeout 60 ls "$1/." >/dev/null 2>&1 || true
}

# The line of this mount point is replaced, never doubled.
write_fstab() {
  local mount=$1 line=$2
  {
    [[ ! -f /etc/fstab ]] || awk -v mount="$mount" '$1 ~ /^#/ || $2 != mount' /etc/fstab
    printf '%s\n' "$line"
  } >/etc/fstab.gpuinfra-new
  mv -f -- /etc/fstab.gpuinfra-new /etc/fstab
}

# source_of TYPE MOUNT: what is mounted there. NFS 4 calls itself nfs4, whatever fstab says.
source_of() {
  local types=$1
  [[ $types != nfs ]] || types=nfs,nfs4
  findmnt -n -t "$types" -o SOURCE --mountpoint "$2" 2>/dev/null | sed -n 1p || true
}

# prove_mount TYPE MOUNT SOURCE: mounted from there, and a word comes back as it was written.
prove_mount() {
  local mount=$2 source=$3 found probe word
  found=$(source_of "$1" "$mount")
  [[ $found == "$source" ]] || die "$mount is not mounted from $source but from ${found:-nothing}"
  probe=$mount/.gpuinfra-$(uname -n)-$$
  word="written at $(date -u +%FT%TZ)"
  printf '%s\n' "$word" >"$probe" || die "$mount does not take a write"
  sync "$probe" 2>/dev/null || sync
  [[ $(<"$probe") == "$word" ]] || die "$mount gives back other bytes than were written"
  rm -f -- "$probe"
}
