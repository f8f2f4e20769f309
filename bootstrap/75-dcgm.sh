#!/usr/bin/env bash
# Installs DCGM, NVIDIA's data center GPU manager for diagnostics and counters, or verifies the one in the image.
#
# Reads:  DCGM_PACKAGES              datacenter-gpu-manager-4-core datacenter-gpu-manager-4-cuda13 and the proprietary parts of both
#         DCGM_VERSION               1:4.5.2-1
#         DCGM_RANGE_MIN, _MAX       versions that an image may contain: 4.4.1, 5 (excluded); older versions lack nvbandwidth, which check B5 uses
#         CUDA_KEYRING_URL, _SHA256  package with NVIDIA's repository and its key
# Proves: dcgmi reports an accepted version, all packages have that version, and nvidia-dcgm runs now and at the next boot.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"

main() {
  load_versions
  need_root
  need_tools apt-get dpkg-query systemctl
  need_variables DCGM_PACKAGES DCGM_VERSION DCGM_RANGE_MIN DCGM_RANGE_MAX
  local version=$DCGM_VERSION packages

  if ! interrupted && accepted DCGM "$(dcgm_version)"; then
    # An image may lack some of the packages; the others are kept, so the missing ones must have their version.
    version=$(package_version "${DCGM_PACKAGES%% *}")
    version=${version:-$DCGM_VERSION}
  fi
  if ! interrupted && accepted DCGM "$(dcgm_version)" && [[ -z $(missing_packages "$version") ]]; then
    unchanged "DCGM $(dcgm_version) is installed; the lock accepts $(wanted DCGM)"
  else
    use_nvidia_repository
    # The proprietary packages hold most tests of the diagnostics. They are only recommended by the others, and DCGM skips a test
    # without its plugin. All have one version: the core library loads the libraries of its own release.
    # shellcheck disable=SC2086  # one word per package
    mapfile -t packages < <(printf "%s=$version\n" $DCGM_PACKAGES)
    install_packages "${packages[@]}"
    ! systemctl is-active --quiet nvidia-dcgm.service || dry_run || systemctl restart nvidia-dcgm.service
  fi
  service_on nvidia-dcgm.service

  end_dry_run
  [[ -z $(missing_packages "$version") ]] || die "not installed at version $version: $(missing_packages "$version" | paste -sd ' ' -)"
  accepted DCGM "$(dcgm_version)" || die "DCGM is $(dcgm_version), but the lock accepts $(wanted DCGM)"
  systemctl is-active --quiet nvidia-dcgm.service || die "nvidia-dcgm is not active: $(service_reason nvidia-dcgm.service)"
  record dcgm "$(dcgm_version)"
  proved "DCGM $(dcgm_version) is running"
}

missing_packages() {
  local name
  for name in $DCGM_PACKAGES; do
    [[ $(package_version "$name") == "$1" ]] || printf '%s\n' "$name"
  done
}

dcgm_version() { dcgmi --version 2>/dev/null | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | sed -n 1p || true; }

main "$@"
