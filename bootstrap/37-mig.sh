#!/usr/bin/env bash
# Cuts the GPUs by MIG as the declaration says. The instances do not survive a reboot, so a unit makes them again at every boot.
#
# Reads:  nothing of versions.env; the profiles are in expectation.json, which `node.pyz mig` reads
# Proves: `node.pyz mig` finds mode and instances as declared, nvidia-smi lists instances, and the unit runs at the next boot.
# Reboots when a GPU changes its mode only with the machine.
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

  would "cut the GPUs, where they are not yet" || cut_gpus
  # User data puts it there too; a machine that was set up over SSH has it from here.
  if put_file "/etc/systemd/system/$UNIT" "$(<"$BUNDLE/units/$UNIT")"; then
    dry_run || systemctl daemon-reload
  fi
  service_on "$UNIT"

  end_dry_run
  count=$(nvidia-smi -L | grep -c '^ *MIG ' || true)
  ((count > 0)) || die "nvidia-smi -L lists no MIG instance"
  record mig "$count"
  proved "$count MIG instances, made again at every boot"
}

cut_gpus() {
  local said status=0 line
  said=$(python3 "$BUNDLE/node.pyz" mig 2>&1) || status=$?
  while read -r line; do
    [[ $line != "changed: "* ]] || changed "${line#changed: }"
  done <<<"$said"
  case $status in
    0) ;;
    "$EXIT_REBOOT") reboot_needed "a GPU changes its MIG mode only with a reboot" ;;
    *) die "node.pyz mig ended with exit code $status: ${said##*$'\n'}" ;;
  esac
}

main "$@"
