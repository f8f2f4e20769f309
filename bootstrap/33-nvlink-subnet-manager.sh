#!/usr/bin/env bash
# Installs the NVLink subnet manager, which machines with fourth-generation NVSwitch (B200, B300) need together with fabric manager.
# It runs before fabric manager, whose own precheck fails unless ib_umad is loaded.
#
# Reads:  NVLSM_VERSION              2025.10.12-1; versioned by date, independent of the driver
#         NVLSM_RANGE_MIN, _MAX      versions that an image may contain: 2025, 2027 (excluded)
#         CUDA_KEYRING_URL, _SHA256  package with NVIDIA's repository and its key
# Proves: module ib_umad is loaded now and at every boot, and nvlsm is installed. Fabric manager's unit starts it.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"

main() {
  load_versions
  need_root
  need_tools apt-get dpkg-query modprobe lsmod
  need_variables NVLSM_VERSION

  # Fabric manager's start script calls ibstat and exits with an error without it.
  if ! interrupted && accepted NVLSM "$(package_version nvlsm)" && command -v ibstat >/dev/null; then
    unchanged "nvlsm $(package_version nvlsm) is installed; the lock accepts $(wanted NVLSM)"
  else
    use_nvidia_repository
    install_packages "nvlsm=$NVLSM_VERSION" libibumad3 infiniband-diags
  fi
  load_module ib_umad

  end_dry_run
  accepted NVLSM "$(package_version nvlsm)" || die "nvlsm is $(package_version nvlsm), but the lock accepts $(wanted NVLSM)"
  module_loaded ib_umad || die "module ib_umad is not loaded"
  command -v ibstat >/dev/null || die "ibstat is missing, so fabric manager does not start; install infiniband-diags"
  record nvlsm "$(package_version nvlsm)"
  proved "nvlsm $(package_version nvlsm) is installed and ib_umad is loaded"
}

main "$@"
