#!/usr/bin/env bash
# Freezes what the steps before it proved: apt changes none of it until a new lock does.
#
# Reads:  nothing of the lock; it holds what is installed.
# Proves: every installed package of driver, fabric manager, CUDA, NCCL, EFA, Lustre, container toolkit and kernel is held.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"

readonly FROZEN=(
  'nvidia-*' 'libnvidia-*' 'cuda-drivers*' 'cuda-toolkit-*' 'libnccl*' 'datacenter-gpu-manager*'
  'lustre-client*' 'efa*' 'libfabric*aws*' 'libnccl-ofi*' 'gdrcopy*' 'gdrdrv*'
  'linux-image-*' 'linux-headers-*' 'linux-modules-*' 'linux-aws*' 'linux-azure*' 'linux-gcp*'
)

main() {
  load_versions
  need_root
  need_tools apt-mark dpkg-query
  local packages package held

  mapfile -t packages < <(packages_matching "${FROZEN[@]}")
  if ((${#packages[@]} > 0)); then
    hold "${packages[@]}"
  fi
  rm -rf -- /var/cache/gpuinfra

  end_dry_run
  held=$(apt-mark showhold)
  for package in "${packages[@]}"; do
    grep -qxF -- "$package" <<<"$held" || die "$package is not held"
  done
  proved "${#packages[@]} packages are held"
}

main "$@"
