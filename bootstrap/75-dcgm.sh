#!/usr/bin/env bash
# Installs DCGM, NVIDIA's data center GPU manager for diagnostics and counters, or verifies the one in the image.
#
# Reads:  DCGM_PACKAGE, DCGM_VERSION  datacenter-gpu-manager-4-cuda13, 1:4.5.2-1
#         DCGM_RANGE_MIN, _MAX       versions that an image may contain: 4.2, 5 (excluded)
#         CUDA_KEYRING_URL, _SHA256  package with NVIDIA's repository and its key
# Proves: dcgmi reports an accepted version, and nvidia-dcgm runs now and at the next boot.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"

main() {
  load_versions
  need_root
  need_tools apt-get dpkg-query systemctl
  need_variables DCGM_PACKAGE DCGM_VERSION DCGM_RANGE_MIN DCGM_RANGE_MAX

  if ! interrupted && accepted DCGM "$(dcgm_version)"; then
    unchanged "DCGM $(dcgm_version) is installed; the lock accepts $(wanted DCGM)"
  else
    use_nvidia_repository
    # Install core and CUDA package at one version: the core library loads the CUDA library of its own release.
    install_packages "datacenter-gpu-manager-4-core=$DCGM_VERSION" "$DCGM_PACKAGE=$DCGM_VERSION"
  fi
  service_on nvidia-dcgm.service

  end_dry_run
  accepted DCGM "$(dcgm_version)" || die "DCGM is $(dcgm_version), but the lock accepts $(wanted DCGM)"
  systemctl is-active --quiet nvidia-dcgm.service || die "nvidia-dcgm is not active: $(service_reason nvidia-dcgm.service)"
  record dcgm "$(dcgm_version)"
  proved "DCGM $(dcgm_version) is running"
}

dcgm_version() { dcgmi --version 2>/dev/null | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | sed -n 1p || true; }

main "$@"
