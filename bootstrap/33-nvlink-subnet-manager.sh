#!/usr/bin/env bash
# Brings the NVLink subnet manager, which fourth-generation NVSwitch machines (B200, B300) need beside fabric manager.
# It comes first, because fabric manager's own precheck fails there unless ib_umad is loaded.
#
# Reads:  CUDA_KEYRING_URL, _SHA256  package that brings NVIDIA's repository and its key
# Proves: module ib_umad is loaded now and at every boot, and nvlsm is installed. Fabric manager's unit starts it.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"

main() {
  load_versions
  need_root
  need_tools apt-get dpkg-query modprobe lsmod

  if [[ -z $(package_version nvlsm) ]]; then
    use_nvidia_repository
    install_packages nvlsm libibumad3 infiniband-diags
  else
    unchanged "nvlsm $(package_version nvlsm) is installed"
  fi
  load_module ib_umad

  end_dry_run
  [[ -n $(package_version nvlsm) ]] || die "nvlsm is not installed"
  module_loaded ib_umad || die "module ib_umad is not loaded"
  record nvlsm "$(package_version nvlsm)"
  proved "nvlsm $(package_version nvlsm) is installed and ib_umad loaded"
}

main "$@"
