#!/usr/bin/env bash
# Prepares the machine for package installation and for RDMA, which locks memory.
#
# Reads:  NODE_OS        operating system that the lock is for: ubuntu-22.04
#         ROOT_FREE_GIB  free space that driver and toolkit require on /, in GiB: 50
#         LOCK_DATE      date of the software lock: 2026-11-20
# Proves: the image has the declared operating system, the clock is correct within five minutes, / has enough free space,
#         no package is half configured, no automatic upgrade changes GPU software, and logins and services may lock all memory.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"

readonly CLOCK_TOLERANCE_S=300

main() {
  load_versions
  need_root
  need_tools apt-get apt-mark dpkg dpkg-query systemctl df date
  need_variables NODE_OS ROOT_FREE_GIB LOCK_DATE

  check_system
  check_clock
  check_room
  stop_background_upgrades
  repair_packages
  install_packages ca-certificates curl gnupg kmod pciutils
  raise_limits

  end_dry_run
  [[ -z $(dpkg --audit) ]] || die "dpkg --audit still lists half-configured packages"
  proved "clock, free space, packages and limits are ready for the next steps"
}

# Without this check, an image with another release fails in a later step with unmet dependencies.
check_system() {
  local found
  # shellcheck source=/dev/null
  found=$(. /etc/os-release && printf '%s-%s' "${ID:-unknown}" "${VERSION_ID:-unknown}")
  [[ $found == "$NODE_OS" ]] ||
    refuse "the image has $found, but the declaration requires $NODE_OS; correct the os or ref field of the image"
}

# With a wrong clock, certificates and request signatures fail with misleading errors, so the clock is checked first.
# Every cloud's metadata service has a fixed address and sends a Date header with every response.
check_clock() {
  local wrong until
  until=$(($(uptime_s) + ${GPUINFRA_CLOCK_PATIENCE_S:-300}))
  while wrong=$(wrong_clock) && [[ -n $wrong ]]; do
    if dry_run || (($(uptime_s) >= until)); then
      die "$wrong; set the clock (timedatectl, chrony)"
    fi
    log "$wrong; waiting for the time service"
    # chrony steps the clock only in its first three updates, and later corrects ten minutes in hours (`makestep 1 3` of Ubuntu's chrony.conf).
    ! command -v chronyc >/dev/null || chronyc makestep >/dev/null 2>&1 || true
    sleep "${GPUINFRA_CLOCK_PAUSE_S:-10}"
  done
}

# wrong_clock: prints what is wrong with the clock, or nothing.
wrong_clock() {
  local now there offset
  now=$(date -u +%s)
  if ((now < $(date -u -d "$LOCK_DATE" +%s))); then
    printf '%s\n' "the clock shows $(date -u -d "@$now" +%F), which is before the date of the software lock, $LOCK_DATE"
  elif there=$(metadata_date); then
    now=$(date -u +%s)
    offset=$((now - there))
    ((${offset#-} <= CLOCK_TOLERANCE_S)) || printf '%s\n' "the clock differs by $offset s from the metadata service"
  fi
}

metadata_date() {
  local line host=${AWS_EC2_METADATA_SERVICE_ENDPOINT:-${AZURE_POD_IDENTITY_AUTHORITY_HOST:-${GCE_METADATA_HOST:-169.254.169.254}}}
  command -v curl >/dev/null || return 1
  line=$(curl -s -o /dev/null -D - --max-time 5 --noproxy '*' "$host/" |
    tr -d '\r' | sed -n 's/^[Dd]ate: //p' | sed -n 1p) || return 1
  [[ -n $line ]] || return 1
  date -u -d "$line" +%s
}

check_room() {
  local free
  free=$(($(df -B1 --output=avail / | tail -n 1) / 1024 / 1024 / 1024))
  ((free >= ROOT_FREE_GIB)) ||
    refuse "/ has $free GiB free, but driver and toolkit require $ROOT_FREE_GIB GiB; set a larger root disk for the pool"
}

# An unattended upgrade of the driver's user space makes all GPUs unavailable until the next reboot.
stop_background_upgrades() {
  local timer
  for timer in apt-daily.timer apt-daily-upgrade.timer; do
    [[ $(systemctl is-enabled "$timer" 2>/dev/null) == enabled ]] || continue
    would "disable $timer" && continue
    systemctl disable --now "$timer"
    changed "disabled $timer"
  done
  put_file /etc/apt/apt.conf.d/52gpuinfra-unattended-upgrades \
    'Unattended-Upgrade::Package-Blacklist {
  "nvidia-";
  "libnvidia-";
  "cuda-";
  "libnccl";
  "xserver-xorg-video-nvidia-";
  "linux-";
  "lustre-";
};' || true
}

raise_limits() {
  put_file /etc/security/limits.d/90-gpuinfra.conf \
    '* soft memlock unlimited
* hard memlock unlimited
* soft nofile 1048576
* hard nofile 1048576
root soft memlock unlimited
root hard memlock unlimited' || true
  if put_file /etc/systemd/system.conf.d/90-gpuinfra.conf \
    '[Manager]
DefaultLimitMEMLOCK=infinity
DefaultLimitNOFILE=1048576'; then
    dry_run || systemctl daemon-reexec
  fi
}

main "$@"
