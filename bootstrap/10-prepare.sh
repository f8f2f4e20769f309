#!/usr/bin/env bash
# Makes the machine a place where packages can be installed and RDMA can lock its memory.
#
# Reads:  ROOT_FREE_GIB  free space that driver and toolkit need on /, in GiB: 50
#         LOCK_DATE      day on which the software lock was made: 2026-11-20
# Proves: the clock is right within five minutes, / has that much room, no package is half configured,
#         nothing upgrades GPU software behind our back, and logins and services may lock all memory.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"

readonly CLOCK_TOLERANCE_S=300

main() {
  load_versions
  need_root
  need_tools apt-get apt-mark dpkg dpkg-query systemctl df date
  need_variables ROOT_FREE_GIB LOCK_DATE

  check_clock
  check_room
  stop_background_upgrades
  mend_packages
  install_packages ca-certificates curl gnupg kmod pciutils
  raise_limits

  end_dry_run
  [[ -z $(dpkg --audit) ]] || die "dpkg --audit still names half-configured packages"
  proved "clock, room, packages and limits are fit for the next steps"
}

# Certificates and request signatures fail in odd words under a wrong clock, so it is named here.
# Every cloud's metadata service sits at one address and dates its answers, whatever else they say.
check_clock() {
  local now earliest there offset
  now=$(date -u +%s)
  earliest=$(date -u -d "$LOCK_DATE" +%s)
  ((now >= earliest)) ||
    refuse "the clock says $(date -u -d "@$now" +%F), before the software lock of $LOCK_DATE was made; set the clock (timedatectl, chrony) and run again"
  there=$(metadata_date) || return 0
  offset=$((now - there))
  ((${offset#-} <= CLOCK_TOLERANCE_S)) ||
    refuse "the clock is off by $offset s against the metadata service; set it (timedatectl, chrony) and run again"
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
    refuse "/ has $free GiB free, driver and toolkit need $ROOT_FREE_GIB GiB; give the pool a larger disk"
}

# One unattended upgrade of the driver's user space takes every GPU away until the next reboot.
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
