#!/usr/bin/env bash
# Runs the script of a declared step (software.steps), and reboots after it if the declaration says so.
#
# Reads:  OWN_SCRIPT    path of the script in the bundle, or empty
#         OWN_URL       address of the script if it is not in the bundle; MIRROR_URL applies
#         OWN_SHA256    SHA-256 of the script
#         OWN_REBOOT    1 to reboot after the script
#         OWN_FINISHED  path of a file that exists from the end of the script until the reboot after it
# Proves: a script with this SHA-256 exited with code 0, and the machine rebooted after it if required.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"

main() {
  need_root
  need_tools sha256sum
  local script=$OWN_SCRIPT status=0 finished='' boot
  [[ ! -e $OWN_FINISHED ]] || read -r finished boot <"$OWN_FINISHED"
  if [[ $finished == "$OWN_SHA256" ]]; then
    rebooted_since "$boot"
    return 0
  fi
  would "run the script with the SHA-256 $OWN_SHA256" && end_dry_run
  rm -f -- "$OWN_FINISHED" # of another script: the declaration was changed before the reboot
  if [[ -n $OWN_URL ]]; then
    script=/var/lib/gpuinfra/scripts/$GPUINFRA_STEP
    get_script "$script"
  fi
  verify_script "$script"
  run_script "$script" || status=$?
  if ((status != 0)); then
    _report exited "$status"
    exit 1
  fi
  changed "the script ran"
  if [[ -n $OWN_REBOOT ]]; then
    printf '%s %s\n' "$OWN_SHA256" "$(this_boot)" >"$OWN_FINISHED.new"
    sync "$OWN_FINISHED.new" 2>/dev/null || true
    mv -f -- "$OWN_FINISHED.new" "$OWN_FINISHED"
    reboot_needed "the script ended, and the declaration contains reboot: true"
  fi
  proved "the script with the SHA-256 $OWN_SHA256 exited with code 0"
}

# rebooted_since BOOT: ends the step if the machine rebooted after the script in this boot, and otherwise requests the reboot.
rebooted_since() {
  if [[ $1 == "$(this_boot)" ]]; then
    would "reboot, because the declaration contains reboot: true" && end_dry_run
    reboot_needed "the script ended, and the declaration contains reboot: true"
  fi
  end_dry_run
  rm -f -- "$OWN_FINISHED"
  proved "the script with the SHA-256 $OWN_SHA256 exited with code 0, and the machine rebooted after it"
}

# get_script PATH: downloads the script of OWN_URL.
get_script() {
  local versions=${GPUINFRA_VERSIONS:-${BASH_SOURCE[0]%/*}/../versions.env}
  need_tools curl
  # shellcheck disable=SC1090  # the lock, of which only this variable is used
  MIRROR_URL=$(. "$versions" && printf '%s' "${MIRROR_URL:-}")
  mkdir -p -- "${1%/*}"
  chmod 700 "${1%/*}"
  download "$OWN_URL" "$1"
  chmod 700 "$1"
}

verify_script() {
  local found
  found=$(file_sha256 "$1")
  [[ $found == "$OWN_SHA256" ]] ||
    refuse "the script of ${OWN_URL:-this step} has the SHA-256 $found, but the declaration requires $OWN_SHA256; the node did not run it"
}

# run_script PATH: the script sees the node's variables, but not the variables that steps use to report.
run_script() (
  trap - ERR
  unset GPUINFRA_REPORT GPUINFRA_DRY_RUN GPUINFRA_UNFINISHED GPUINFRA_VERSIONS MIRROR_URL "${!OWN_@}"
  exec "$1"
)

main "$@"
