#!/usr/bin/env bash
# Installs the Lustre client for exactly this kernel and mounts the cluster's Lustre file systems.
#
# Reads:  LUSTRE_CLIENT_RANGE_MIN, _MAX     client versions that match the file system: 2.12, 2.18 (excluded)
#         LUSTRE_REPOSITORY, LUSTRE_SUITE   https://fsx-lustre-client-repo.s3.amazonaws.com/ubuntu, jammy
#         LUSTRE_KEY_URL, _KEY_FINGERPRINT  the repository's key; 40 hex digits
#         LUSTRE_PACKAGES                   packages, the client for this kernel first; @KERNEL@ is the running kernel:
#                                           lustre-client-modules-@KERNEL@ lustre-client-modules-aws on AWS,
#                                           amlfs-lustre-client-2.17.0-24-gf517bc4=@KERNEL@ on Azure
#         LNET_EFA_DEVICES                  EFA devices for Lustre: 8; empty if Lustre uses TCP only (lib-lnet.sh)
#         GPUINFRA_FILE_SYSTEMS             lines of `kind mount dns_name mount_name`, from node.json
# Proves: the module matches the running kernel, each file system is mounted from its own server and accepts a write, and
#         Lustre receives messages over EFA if it should use EFA.
# With the `at-boot` argument, it only configures LNet again after a reboot.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"
# shellcheck source=bootstrap/lib-mounts.sh
. "${BASH_SOURCE[0]%/*}/lib-mounts.sh"
# shellcheck source=bootstrap/lib-lnet.sh
. "${BASH_SOURCE[0]%/*}/lib-lnet.sh"

readonly MOUNT_OPTIONS=noatime,flock

main() {
  load_versions
  need_root
  need_tools apt-get dpkg-query modprobe modinfo uname mount mountpoint findmnt
  need_variables LUSTRE_CLIENT_RANGE_MIN LUSTRE_CLIENT_RANGE_MAX
  local kind mount server name
  if [[ ${1:-} == at-boot ]]; then
    lnet_over_efa
    return
  fi

  if ! interrupted && module_fits lustre && in_range; then
    unchanged "Lustre client $(client_version) matches kernel $(uname -r)"
  else
    install_client
  fi
  load_module lustre
  if [[ -n ${LNET_EFA_DEVICES:-} ]]; then
    lnet_over_efa
    lnet_at_boot
  fi
  while read -r kind mount server name; do
    [[ $kind != lustre ]] || mount_one lustre "$mount" "$server@tcp:/$name" "$MOUNT_OPTIONS,$(boot_options lustre "$mount")"
  done <<<"${GPUINFRA_FILE_SYSTEMS:-}"

  end_dry_run
  module_fits lustre || die "module lustre was built for $(modinfo -F vermagic lustre), not for $(uname -r)"
  in_range || die "the Lustre client is $(client_version), but the lock accepts from $LUSTRE_CLIENT_RANGE_MIN up to below $LUSTRE_CLIENT_RANGE_MAX"
  while read -r kind mount server name; do
    [[ $kind != lustre ]] || prove_mount lustre "$mount" "$server@tcp:/$name"
  done <<<"${GPUINFRA_FILE_SYSTEMS:-}"
  if [[ -n ${LNET_EFA_DEVICES:-} ]]; then
    prove_lnet
    record lnet_efa "$(lnet_up efa)"
  fi
  record lustre_client "$(client_version)"
  proved "Lustre client $(client_version) matches kernel $(uname -r), and its file systems accept writes"
}

client_version() { lfs --version 2>/dev/null | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | sed -n 1p || true; }
in_range() { version_in "$(client_version)" "$LUSTRE_CLIENT_RANGE_MIN" "$LUSTRE_CLIENT_RANGE_MAX"; }

install_client() {
  local packages
  need_tools gpg curl
  need_variables LUSTRE_REPOSITORY LUSTRE_SUITE LUSTRE_KEY_URL LUSTRE_KEY_FINGERPRINT LUSTRE_PACKAGES
  add_repository lustre-client "$LUSTRE_REPOSITORY" "$LUSTRE_SUITE main" "$LUSTRE_KEY_URL" "$LUSTRE_KEY_FINGERPRINT"
  read -ra packages <<<"${LUSTRE_PACKAGES//@KERNEL@/$(uname -r)}"
  if ! dry_run; then
    apt_refresh
    offered "${packages[0]}" ||
      refuse "the vendor has no Lustre client for kernel $(uname -r); available: $(known_kernels); set one of these as the lock's kernel"
  fi
  install_packages "${packages[@]}"
}

# The newest kernels that the vendor supports, from package names, or from versions if all packages have one name.
known_kernels() {
  local before=${LUSTRE_PACKAGES%%@KERNEL@*}
  case $before in
    *=) package_versions "${before%=}" ;;
    *) apt-cache pkgnames "$before" | sed -n "s/^$before\([0-9]\)/\1/p" ;;
  esac | sort -V | tail -n 3 | paste -sd ' ' -
}

main "$@"
