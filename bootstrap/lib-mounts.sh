# shellcheck shell=bash
# Shared file systems: one line each in /etc/fstab, mounted from their own server, proven by a write. Sourced by the steps that mount.

readonly MOUNT_S=90 # as long as systemd waits for a mount at boot (DefaultTimeoutStartSec=)

# boot_options TYPE MOUNT: prints the options of the fstab line that decide when systemd mounts it at boot. An automount
# exists before the network is up, and whatever accesses it blocks until the mount ends. At early boot, systemd accesses
# /home, for example for the file system view of systemd-networkd, and /srv: then mount and network wait for each other
# (systemd issues 23652, 17657, 39177 and 1959). Home directories, and Lustre at these paths, are mounted without one.
# Elsewhere, Lustre is mounted on first access, as the clouds document it.
# nofail: if the server does not respond, the machine boots and its checks report the mount. It also removes the order before
# remote-fs.target, after which users log in, so this order is set here. mount.lustre passes nofail to the kernel, which refuses it.
boot_options() {
  local nofail=,nofail
  local -r before=x-systemd.before=remote-fs.target,x-systemd.before=gpuinfra-bootstrap.service,x-systemd.before=gpuinfra-verify.service
  local -r network=x-systemd.requires=network-online.target
  if [[ $1 == lustre ]]; then
    case $2/ in
      /home/* | /srv/*) nofail= ;;
      *)
        printf '_netdev,x-systemd.automount,%s\n' "$network"
        return
        ;;
    esac
  fi
  printf '_netdev%s,%s,%s\n' "$nofail" "$network" "$before"
}

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
      # The runner repeats the whole step too, so a server that refuses is reported after two minutes.
      retry 3 "mounting $mount" mount_in_time "$mount"
      changed "mounted $mount"
    }
  fi
}

# mount_in_time MOUNT: mount.nfs and mount.lustre wait for a server that does not respond, longer than the step may take.
mount_in_time() {
  local status=0
  timeout -k 10 "$MOUNT_S" mount "$1" || status=$?
  ((status != 124)) || printf '%s\n' "the server of $1 did not respond within $MOUNT_S s" >&2
  return "$status"
}

# trigger_automount MOUNT: after a reboot systemd mounts an automount on first access; mounting it again with mount would fail.
# An automount that was removed from fstab exists until the next boot.
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

# mounted_scratch: prints where the local disks are mounted (SCRATCH_MOUNT or SCRATCH_OF_IMAGE), or nothing.
mounted_scratch() {
  local place
  for place in "${SCRATCH_MOUNT:-}" "${SCRATCH_OF_IMAGE:-}"; do
    if [[ -n $place ]] && mountpoint -q "$place"; then
      printf '%s\n' "$place"
      return
    fi
  done
}

# prove_mount TYPE MOUNT SOURCE: proves that SOURCE is mounted on MOUNT and that a write can be read back, unless MOUNT is a replica without writes.
prove_mount() {
  local found
  found=$(source_of "$1" "$2")
  [[ $found == "$3" ]] || die "$2 is mounted from ${found:-nothing}, expected $3"
  is_read_only_replica "$2" || prove_write "$2"
}

# is_read_only_replica MOUNT: whether MOUNT is a replica of the home directories of the first region (option of its line in fstab) that does not accept
# writes. It accepts writes when `gpuinfra failover` ends the replication, without being mounted again.
is_read_only_replica() {
  local probe
  awk -v mount="$1" '$2 == mount && $4 ~ /(^|,)x-gpuinfra[.]replica(,|$)/ { found = 1 } END { exit !found }' /etc/fstab || return 1
  probe=$(mktemp -d "$1/.gpuinfra-XXXXXXXXXXXX" 2>/dev/null) || return 0
  rmdir -- "$probe"
  return 1
}

# prove_write FOLDER: proves that a write can be read back. Users can write in the folder, and root must not follow a link that one of them
# creates: the name cannot be guessed, only a new file is written (O_EXCL), and neither the write nor the read follows a link or waits for a pipe.
prove_write() {
  local probe word
  probe=$1/.gpuinfra-$(new_word)
  word="written at $(date -u +%FT%TZ) $(new_word)"
  printf '%s\n' "$word" | dd of="$probe" conv=excl,fsync oflag=nofollow status=none || die "$1 does not accept a write"
  [[ $(dd if="$probe" iflag=nofollow,nonblock bs=4096 count=1 status=none | tr -d '\0') == "$word" ]] ||
    die "$1 returns data that differs from the written data"
  rm -f -- "$probe"
}

# new_word: prints 32 random digits.
new_word() { od -A n -N 16 -t x1 /dev/urandom | tr -d ' \n'; }

# copy_folder SOURCE TARGET [OWNER]: copies a folder, unless TARGET exists. Users may be able to write in the folder that contains TARGET, so the
# copy is made inside of a new folder that only root can enter, without using its name again.
copy_folder() {
  local draft
  draft=$(mktemp -d "${2%/*}/.gpuinfra-XXXXXXXXXXXX")
  (
    cd -P -- "$draft" || exit
    [[ -O . && $(stat -c %a .) == 700 && -z $(ls -A) ]] || die "another program replaced $draft"
    cp -a -- "$1/." .
    [[ -z ${3:-} ]] || { chmod 0750 . && chown -R "$3:$3" .; }
  )
  # If the target exists, `mv -n` fails in coreutils 9.2 to 9.4 (Ubuntu 24.04) and succeeds in other versions: https://bugs.gnu.org/62572
  mv -nT -- "$draft" "$2" || [[ -e $2 ]]
  rm -rf -- "$draft"
}
