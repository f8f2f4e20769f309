#!/usr/bin/env bash
# Installs the host's NCCL, or verifies the one in the image. Frameworks contain their own NCCL; MPI programs use this one.
#
# Reads:  NCCL_VERSION          version of NVIDIA's packages: 2.27.5-1+cuda12.9
#         NCCL_RANGE_MIN, _MAX  versions that an image may contain: 2.27, 3 (excluded)
#         CUDA_KEYRING_URL, _SHA256  package with NVIDIA's repository and its key
# Proves: the loader finds libnccl.so.2, and its version is accepted.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"

main() {
  load_versions
  need_root
  need_tools apt-get dpkg-query ldconfig
  need_variables NCCL_VERSION
  local found
  found=$(nccl_version)

  if ! interrupted && [[ -n $found ]] && accepted NCCL "$found"; then
    unchanged "NCCL $found is installed; the lock accepts $(wanted NCCL)"
  else
    use_nvidia_repository
    install_packages "libnccl2=$NCCL_VERSION" "libnccl-dev=$NCCL_VERSION"
    dry_run || ldconfig
  fi

  end_dry_run
  found=$(nccl_version)
  [[ -n $found ]] || die "the loader does not find libnccl.so.2 (ldconfig -p)"
  accepted NCCL "$found" || die "NCCL $found is installed, but the lock accepts $(wanted NCCL)"
  record nccl "$found"
  proved "the loader finds NCCL $found"
}

# The version of the package if one is installed, otherwise the version in the library's file name.
nccl_version() {
  local library packaged
  library=$(ldconfig -p | awk '$1 == "libnccl.so.2" { print $NF }' | sed -n 1p)
  [[ -n $library ]] || return 0
  packaged=$(package_version libnccl2)
  if [[ -n $packaged ]]; then
    printf '%s\n' "$packaged"
  else
    readlink -f "$library" | sed -n 's/.*libnccl\.so\.\([0-9]*\.[0-9.]*\)$/\1/p'
  fi
}

main "$@"
