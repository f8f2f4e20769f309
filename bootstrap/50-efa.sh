#!/usr/bin/env bash
# Installs EFA (kernel module, libfabric and the NCCL plugin) with Amazon's installer, or verifies the one in the image.
#
# Reads:  EFA_INSTALLER_VERSION          1.51.0
#         EFA_INSTALLER_RANGE_MIN, _MAX  versions that an image may contain: 1.29, 2 (excluded)
#         EFA_INSTALLER_URL              https://efa-installer.amazonaws.com/aws-efa-installer-1.51.0.tar.gz
#         EFA_INSTALLER_KEY_URL          https://efa-installer.amazonaws.com/aws-efa-installer.key
#         EFA_INSTALLER_KEY_FINGERPRINT  40 hex digits
# Proves: module efa is loaded and matches the kernel, libfabric has the efa provider, the NCCL plugin's library exists.
#         The checks verify the number of devices. Logins get the environment of libfabric.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"
# shellcheck source=bootstrap/lib-nccl.sh
. "${BASH_SOURCE[0]%/*}/lib-nccl.sh"

readonly HOME_OF_EFA=/opt/amazon/efa
readonly INSTALLED=/opt/amazon/efa_installed_packages

main() {
  load_versions
  need_root
  need_tools modprobe modinfo lsmod tar gzip
  need_variables EFA_INSTALLER_VERSION EFA_INSTALLER_URL EFA_INSTALLER_KEY_URL EFA_INSTALLER_KEY_FINGERPRINT
  local found
  found=$(installer_version)

  if accepted EFA_INSTALLER "$found" && [[ -n $(nccl_plugin) ]]; then
    unchanged "EFA installer $found was run; the lock accepts $(wanted EFA_INSTALLER)"
  else
    would "run EFA installer $EFA_INSTALLER_VERSION" || run_installer
  fi
  load_module efa
  # libfabric and the plugin find the devices by themselves. Huge pages make a program that forks, such as a data loader, fail.
  nccl_environment 'export FI_EFA_USE_HUGE_PAGE=0'

  end_dry_run
  found=$(installer_version)
  accepted EFA_INSTALLER "$found" || die "the EFA installer is ${found:-none}, but the lock accepts $(wanted EFA_INSTALLER)"
  module_fits efa || die "module efa was built for $(modinfo -F vermagic efa), not for $(uname -r)"
  grep -q '^efa:' <<<"$("$HOME_OF_EFA/bin/fi_info" -l)" || die "libfabric in $HOME_OF_EFA has no efa provider (fi_info -l)"
  [[ -n $(nccl_plugin) ]] || die "/opt/amazon/ofi-nccl has no libnccl-net library; NCCL would fall back to TCP"
  record efa_installer "$found"
  proved "EFA $found: module loaded, provider efa, NCCL plugin $(nccl_plugin)"
}

installer_version() { sed -n 's/^# EFA installer version: //p' "$INSTALLED" 2>/dev/null || true; }

nccl_plugin() { find /opt/amazon/ofi-nccl/ -name 'libnccl-net*.so*' 2>/dev/null | sort | sed -n 1p; }

efa_installer() { (cd "$1" && ./efa_installer.sh -y); }

run_installer() {
  local work tarball
  need_tools curl gpg
  work=$(work_folder efa)
  tarball=$work/aws-efa-installer-$EFA_INSTALLER_VERSION.tar.gz
  download "$EFA_INSTALLER_URL" "$tarball"
  download "$EFA_INSTALLER_URL.sig" "$tarball.sig"
  download "$EFA_INSTALLER_KEY_URL" "$work/key"
  verify_signature "$tarball" "$tarball.sig" "$work/key" "$EFA_INSTALLER_KEY_FINGERPRINT"
  rm -rf -- "$work/aws-efa-installer"
  tar -xzf "$tarball" -C "$work" --no-same-owner
  repair_packages
  apt_refresh
  retry 2 "running the EFA installer" efa_installer "$work/aws-efa-installer"
  changed "ran EFA installer $EFA_INSTALLER_VERSION"
}

main "$@"
