#!/usr/bin/env bash
# Creates the declared MIG instances. Instances do not survive a reboot, so a unit creates them again at every boot.
#
# Reads:  nothing from versions.env; `node.pyz mig` reads the profiles from expectation.json
# Proves: `node.pyz mig` finds mode and instances as declared, nvidia-smi lists instances, and the unit is enabled for the next boot.
# Reboots when a GPU changes its mode only with a reboot.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"

readonly BUNDLE=${BASH_SOURCE[0]%/*}/..
readonly UNIT=gpuinfra-mig.service

main() {
  load_versions
  need_root
  need_tools python3 systemctl nvidia-smi
  local count

  would "create the missing MIG instances" || configure_mig
  # User data also installs the unit; this covers machines that were set up over SSH.
  if put_file "/etc/systemd/system/$UNIT" "$(<"$BUNDLE/units/$UNIT")"; then
    dry_run || systemctl daemon-reload
  fi
  service_on "$UNIT"

  end_dry_run
  count=$(nvidia-smi -L | grep -c '^ *MIG ' || true)
  ((count > 0)) || die "nvidia-smi -L lists no MIG instance"
  record mig "$count"
  proved "$count MIG instances, created again at every boot"
}

configure_mig() {
  local output status=0 line
  output=$(python3 "$BUNDLE/node.pyz" mig 2>&1) || status=$?
  while read -r line; do
    [[ $line != "changed: "* ]] || changed "${line#changed: }"
  done <<<"$output"
  case $status in
    0) ;;
    "$EXIT_REBOOT") reboot_needed "a GPU changes its MIG mode only with a reboot" ;;
    *) die "node.pyz mig failed with exit code $status: ${output##*$'\n'}" ;;
  esac
}

main "$@"
