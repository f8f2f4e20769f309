#!/usr/bin/env bash
# Creates one scratch file system on the machine's local NVMe disks, or verifies the one in the image.
#
# Reads:  SCRATCH_MOUNT     mount point: /mnt/nvme
#         SCRATCH_MODEL     pattern for the model of local disks: Amazon EC2 NVMe Instance Storage
#         SCRATCH_DISKS     number of local disks of the machine type: 8; 0 if it is not known
#         SCRATCH_OF_IMAGE  mount point in the cloud's GPU image: /opt/dlami/nvme; empty if the image has none
# Proves: all local disks are present, a file system on local disks is mounted and accepts a write. Its data is lost with the instance.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"
# shellcheck source=bootstrap/lib-mounts.sh
. "${BASH_SOURCE[0]%/*}/lib-mounts.sh"

readonly ARRAY=/dev/md/gpuinfra-scratch
readonly LABEL=gpuinfra-scr # XFS labels have at most 12 characters

main() {
  load_versions
  need_root
  need_tools lsblk findmnt mount mountpoint
  need_variables SCRATCH_MOUNT SCRATCH_MODEL SCRATCH_DISKS
  local place present

  present=$(local_disks)
  ((present == SCRATCH_DISKS || (SCRATCH_DISKS == 0 && present > 0))) ||
    refuse "$present of $SCRATCH_DISKS local disks of model \"$SCRATCH_MODEL\" are present (see lsblk); replace the node"

  place=$(mounted_scratch)
  if [[ -n $place ]]; then
    unchanged "local disks are mounted at $place"
    keep_folders "$place"
  else
    would "create scratch from the local disks at $SCRATCH_MOUNT" || make_scratch
  fi

  end_dry_run
  place=$(mounted_scratch)
  [[ -n $place ]] || die "$SCRATCH_MOUNT is not mounted"
  prove_write "$place"
  record scratch "$place"
  proved "scratch at $place accepts writes"
}

# keep_folders PLACE: in a folder that all users can write, only the owner of a file can rename or remove it. Root's caches of buckets rely on this.
keep_folders() {
  [[ ! -k $1 && $(stat -c %A "$1") == *w? ]] || return 0
  would "set the sticky bit of $1" && return 0
  chmod +t "$1"
  changed "set the sticky bit of $1"
}

make_scratch() {
  local disks target
  mapfile -t disks < <(empty_disks)
  ((${#disks[@]} > 0)) || refuse "no empty local disk of model \"$SCRATCH_MODEL\" (see lsblk); check that this machine type has local disks"
  install_packages mdadm xfsprogs
  target=${disks[0]}
  if ((${#disks[@]} > 1)); then
    target=$ARRAY
    [[ -e $ARRAY ]] || mdadm --create "$ARRAY" --run --level=0 --name=gpuinfra-scratch \
      --raid-devices="${#disks[@]}" "${disks[@]}"
  fi
  # -K: do not discard terabytes of blocks, because the disks are new.
  [[ $(lsblk -dno LABEL "$target") == "$LABEL" ]] || mkfs.xfs -f -K -L "$LABEL" "$target"
  mkdir -p "$SCRATCH_MOUNT"
  # nofail: the disks are empty after a stop, but the machine must still boot.
  if ! grep -q "^LABEL=$LABEL " /etc/fstab; then
    printf 'LABEL=%s %s xfs defaults,noatime,nofail 0 0\n' "$LABEL" "$SCRATCH_MOUNT" >>/etc/fstab
  fi
  mount "$SCRATCH_MOUNT"
  chmod 1777 "$SCRATCH_MOUNT"
  changed "created scratch from ${#disks[@]} local disks at $SCRATCH_MOUNT"
}

local_disks() { lsblk -dno MODEL | grep -cEx " *($SCRATCH_MODEL) *" || true; }

# Disks of that model without a foreign file system, partition or RAID member.
empty_disks() {
  local name
  lsblk -dnpo NAME,MODEL | while read -r name model; do
    [[ $model =~ ^($SCRATCH_MODEL)$ ]] || continue
    [[ $(lsblk -nro FSTYPE,LABEL "$name" | tr -d ' \n') =~ ^(|linux_raid_member.*gpuinfra-scratch.*|xfs$LABEL)$ ]] || continue
    printf '%s\n' "$name"
  done
}

main "$@"
