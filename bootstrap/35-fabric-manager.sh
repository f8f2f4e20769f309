#!/usr/bin/env bash
# Runs NVIDIA's fabric manager, which connects the GPUs of an NVSwitch machine; without it CUDA fails with error 802.
#
# Reads:  FABRIC_MANAGER_PACKAGE  nvidia-fabricmanager
#         CUDA_KEYRING_URL, _SHA256  package with NVIDIA's repository and its key
# Proves: its version equals the loaded driver's version exactly, and the service runs now and at the next boot.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"

readonly UNIT=nvidia-fabricmanager.service

main() {
  load_versions
  need_root
  need_tools apt-get dpkg-query systemctl
  need_variables FABRIC_MANAGER_PACKAGE
  local driver found
  driver=$(loaded_driver)
  found=$(manager_version)

  if ! interrupted && [[ -n $driver && $found == "$driver" ]]; then
    unchanged "fabric manager $found is installed and matches the driver"
  else
    # The service refuses to start with any other version, so use the driver's version and not the lock's.
    use_nvidia_repository
    install_packages "$FABRIC_MANAGER_PACKAGE=${driver:-${DRIVER_VERSION:?}}-*"
  fi
  service_on "$UNIT"

  end_dry_run
  found=$(manager_version)
  [[ $found == "$driver" ]] ||
    die "the fabric manager is ${found:-absent}, but the driver is $driver; install the same version: $FABRIC_MANAGER_PACKAGE=$driver-*"
  systemctl is-active --quiet "$UNIT" || die "$UNIT is not active: $(service_reason "$UNIT")"
  record fabric_manager "$found"
  proved "fabric manager $found is running"
}

loaded_driver() {
  if [[ -r /proc/driver/nvidia/version ]]; then
    sed -n 's/^NVRM version:.*[^0-9.]\([0-9]\{3\}\.[0-9.]*[0-9]\) .*/\1/p' /proc/driver/nvidia/version | sed -n 1p
  elif ! dry_run; then
    refuse "no driver is loaded; run step 30-driver first"
  fi
}

manager_version() {
  command -v nv-fabricmanager >/dev/null || return 0
  nv-fabricmanager --version 2>/dev/null | grep -oE '[0-9]{3}\.[0-9.]+' | sed -n 1p || true
}

main "$@"
