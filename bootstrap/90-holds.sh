#!/usr/bin/env bash
# Holds the packages that the previous steps verified, so apt does not change them until a new lock does.
#
# Reads:  HOLD_PATTERNS  globs over package names: nvidia-* libnccl* linux-image-*
# Proves: no package is half installed, and every installed package that matches is held.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"

main() {
  load_versions
  need_root
  need_tools apt-get apt-mark dpkg dpkg-query
  need_variables HOLD_PATTERNS
  local patterns packages package held

  repair_packages
  read -ra patterns <<<"$HOLD_PATTERNS"
  mapfile -t packages < <(packages_matching "${patterns[@]}")
  if ((${#packages[@]} > 0)); then
    hold "${packages[@]}"
  fi
  rm -rf -- /var/cache/gpuinfra

  end_dry_run
  [[ -z $(dpkg --audit) ]] || die "dpkg --audit still lists half-installed packages"
  held=$(apt-mark showhold)
  for package in "${packages[@]}"; do
    grep -qxF -- "$package" <<<"$held" || die "$package is not held"
  done
  proved "${#packages[@]} packages are held"
}

main "$@"
