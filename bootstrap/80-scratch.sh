#!/usr/bin/env bash
# Makes the machine's local NVMe disks one fast scratch folder, or proves the one that the image made.
#
# Reads:  SCRATCH_MOUNT     where it is mounted: /mnt/nvme
#         SCRATCH_MODEL     pattern for the model of local disks: Amazon EC2 NVMe Instance Storage
#         SCRATCH_OF_IMAGE  where the cloud's GPU image mounts them: /opt/dlami/nvme; empty where it does not
# Proves: a file system on local disks is mounted, and takes a write. What is on it ends with the instance.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"

readonly ARRAY=/dev/md/gpuinfra-scratch
readonly LABEL=gpuinfra-scr # XFS labels end at 12 letters

main() {
  load_versions
  need_root
  need_tools lsblk findmnt mount mountpoint
  need_variables SCRATCH_MOUNT SCRATCH_MODEL
  local place

  place=$(mounted_place)
  if [[ -n $place ]]; then
    unchanged "local disks are mounted at $place"
  else
    would "make one scratch of the local disks at $SCRATCH_MOUNT" || make_scratch
  fi

  end_dry_run
  place=$(mounted_place)
  [[ -n $place ]] || die "$SCRATCH_MOUNT is not mounted"
  prove_write "$place"
  record scratch "$place"
  proved "scratch at $place takes writes"
}

mounted_place() {
  local place
  for place in "$SCRATCH_MOUNT" "${SCRATCH_OF_IMAGE:-}"; do
    if [[ -n $place ]] && mountpoint -q "$place"; then
      printf '%s\n' "$place"
      return
    fi
  done
}

make_scratch() {
  local disks target
  mapfile -t disks < <(empty_disks)
  ((${#disks[@]} > 0)) || refuse "no empty local disk of model \"$SCRATCH_MODEL\" here (lsblk); does this machine type have any?"
  install_packages mdadm xfsprogs
  target=${disks[0]}
  if ((${#disks[@]} > 1)); then
    target=$ARRAY
    [[ -e $ARRAY ]] || mdadm --create "$ARRAY" --run --level=0 --name=gpuinfra-scratch \
      --raid-devices="${#disks[@]}" "${disks[@]}"
  fi
  # -K: no discard of terabytes first; the disks are new.
  [[ $(lsblk -dno LABEL "$target") == "$LABEL" ]] || mkfs.xfs -f -K -L "$LABEL" "$target"
  mkdir -p "$SCRATCH_MOUNT"
  # nofail: the disks are empty after a stop, and the machine has to boot all the same.
  if ! grep -q "^LABEL=$LABEL " /etc/fstab; then
    printf 'LABEL=%s %s xfs defaults,noatime,nofail 0 0\n' "$LABEL" "$SCRATCH_MOUNT" >>/etc/fstab
  fi
  mount "$SCRATCH_MOUNT"
  chmod 1777 "$SCRATCH_MOUNT"
  changed "made a scratch of ${#disks[@]} local disks at $SCRATCH_MOUNT"
}

# Disks of that model without a file system, partition or member mark of anything else.
empty_disks() {
  local name
  lsblk -dnpo NAME,MODEL | while read -r name model; do
    [[ $model =~ ^($SCRATCH_MODEL)$ ]] || continue
    [[ $(lsblk -nro FSTYPE,LABEL "$name" | tr -d ' \n') =~ ^(|linux_raid_member.*gpuinfra-scratch.*|xfs$LABEL)$ ]] || continue
    printf '%s\n' "$name"
  done
}

prove_write() {
  local probe=$1/.gpuinfra-$$
  printf 'ok\n' >"$probe" || die "$1 does not take a write"
  [[ $(<"$probe") == ok ]] || die "$1 gives back other bytes than were written"
  rm -f -- "$probe"
}

main "$@"
