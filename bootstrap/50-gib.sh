#!/usr/bin/env bash
# Installs gIB, Google's NCCL plugin for GPUDirect RDMA (A3 Ultra, A4), or verifies the one in the image.
#
# Reads:  GIB_VERSION, GIB_RANGE_MIN, _MAX  1.1.0; versions that an image may contain: 1.1, 2 (excluded)
#         GIB_REPOSITORY, GIB_SUITE         https://us-apt.pkg.dev/projects/gce-ai-infra, gpudirect-gib-apt
#         GIB_KEY_URL, GIB_KEY_FINGERPRINT  the repository's key; 40 hex digits
# Proves: nccl-gib has an accepted version, and the script that sets NCCL's environment exists. Logins source it.
#         ib_write_bw of Ubuntu's perftest exists; check N5 measures the RDMA devices with it.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"
# shellcheck source=bootstrap/lib-nccl.sh
. "${BASH_SOURCE[0]%/*}/lib-nccl.sh"

readonly ENVIRONMENT=/usr/local/gib/scripts/set_nccl_env.sh

main() {
  load_versions
  need_root
  need_tools apt-get dpkg-query
  need_variables GIB_VERSION
  local found
  found=$(package_version nccl-gib)

  if ! interrupted && accepted GIB "$found"; then
    unchanged "gIB $found is installed; the lock accepts $(wanted GIB)"
  else
    need_variables GIB_REPOSITORY GIB_SUITE GIB_KEY_URL GIB_KEY_FINGERPRINT
    # Published recipes use this repository without signatures (trusted=yes). This step pins its key.
    add_repository gpudirect-gib "$GIB_REPOSITORY" "$GIB_SUITE main" "$GIB_KEY_URL" "$GIB_KEY_FINGERPRINT"
    install_packages "nccl-gib=$GIB_VERSION"
  fi
  if command -v ib_write_bw >/dev/null; then
    unchanged "perftest is installed"
  else
    install_packages perftest
  fi
  nccl_environment ". $ENVIRONMENT
export LD_LIBRARY_PATH=/usr/local/gib/lib64\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH} NCCL_NET=gIB"

  end_dry_run
  found=$(package_version nccl-gib)
  accepted GIB "$found" || die "nccl-gib is ${found:-absent}, but the lock accepts $(wanted GIB)"
  [[ -r $ENVIRONMENT ]] || die "$ENVIRONMENT is missing; NCCL would fall back to TCP"
  compgen -G '/usr/local/gib/lib64/libnccl-net*.so*' >/dev/null || die "/usr/local/gib/lib64 has no NCCL plugin"
  command -v ib_write_bw >/dev/null || die "perftest is installed, but PATH has no ib_write_bw"
  record gib "$found"
  proved "gIB $found and its NCCL plugin are installed"
}

main "$@"
