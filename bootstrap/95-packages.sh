#!/usr/bin/env bash
# Installs the declared packages (software.packages) from the repositories of the node.
#
# It runs after the holds: apt does not change a held package to install a declared one, so the packages in the lock stay as verified.
#
# Reads:  EXTRA_PACKAGES  names with an optional version: htop nvme-cli=2.8-1
# Proves: each package is installed, and a package with a version has this version and is held.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"

main() {
  load_versions
  need_root
  need_tools apt-get apt-cache apt-mark dpkg dpkg-query
  need_variables EXTRA_PACKAGES
  local packages spec name version found held

  read -ra packages <<<"$EXTRA_PACKAGES"
  install_declared "${packages[@]}"
  for spec in "${packages[@]}"; do
    [[ $spec != *=* ]] || hold "${spec%%=*}"
  done

  end_dry_run
  held=$(apt-mark showhold)
  for spec in "${packages[@]}"; do
    name=${spec%%=*}
    found=$(package_version "$name")
    [[ -n $found ]] || die "$name is not installed"
    [[ $spec == *=* ]] || continue
    version=${spec#*=}
    [[ $found == "$version" ]] || die "$name has the version $found, but the declaration requires $version"
    grep -qxF -- "$name" <<<"$held" || die "$name is not held"
  done
  proved "${#packages[@]} declared packages are installed"
}

# install_declared SPEC...: installs the packages that are missing or have another version.
install_declared() {
  local spec installed held missing=() unknown=()
  for spec in "$@"; do
    installed=$(package_version "${spec%%=*}")
    [[ -n $installed && ($spec != *=* || $installed == "${spec#*=}") ]] || missing+=("$spec")
  done
  if ((${#missing[@]} == 0)); then
    unchanged "installed: $*"
    return 0
  fi
  would "install ${missing[*]}" && return 0
  begin_installing
  repair_packages
  apt_refresh
  for spec in "${missing[@]}"; do
    offered "$spec" || unknown+=("$spec")
  done
  held=$(apt-mark showhold)
  ((${#unknown[@]} == 0)) || refuse "the repositories of this node do not contain ${unknown[*]} (software.packages)"
  # A declared package that is held at an earlier declared version can change; packages of the lock cannot.
  for spec in "${missing[@]}"; do
    [[ $spec != *=* ]] || ! grep -qxF -- "${spec%%=*}" <<<"$held" || retry 3 "releasing ${spec%%=*}" apt-mark unhold "${spec%%=*}"
  done
  retry 3 "installing ${missing[*]}" apt-get "${APT_OPTIONS[@]}" --allow-downgrades --no-remove install "${missing[@]}"
  changed "installed ${missing[*]}"
}

main "$@"
