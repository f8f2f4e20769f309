#!/usr/bin/env bash
# Brings NVIDIA's driver, or proves the one that the image brought.
#
# Reads:  DRIVER_VERSION                  580.126.20
#         DRIVER_RANGE_MIN, _MAX          versions that an image may bring: 580.95, 581 (excluded)
#         DRIVER_FLAVOUR                  open or proprietary kernel module
#         DRIVER_PACKAGE                  nvidia-open or cuda-drivers
#         CUDA_KEYRING_URL, _SHA256       package that brings NVIDIA's repository and its key
# Proves: the loaded module has an accepted version and the wanted flavour, was built for this kernel, and user space
#         answers with the same version. How many GPUs answer is for the checks to judge.
# Reboots when an older module or nouveau is loaded and holds the devices.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"

main() {
  load_versions
  need_root
  need_tools apt-get dpkg dpkg-query modinfo modprobe lsmod systemctl uname
  need_variables DRIVER_VERSION DRIVER_FLAVOUR DRIVER_PACKAGE

  local found
  found=$(module_version)
  if [[ -z $found ]] || { cut_off && accepted DRIVER "$found"; }; then
    install_driver
    # Not there when this boot began: check D7 waits for a boot that loads it by itself.
    dry_run || record driver_boot "$(installed_in_boot)"
  elif accepted DRIVER "$found"; then
    unchanged "driver $found is installed; the lock accepts $(wanted DRIVER)"
  else
    refuse "driver $found is installed, the lock accepts $(wanted DRIVER); choose an image that brings it, or image: plain"
  fi

  leave_nouveau
  if ! dry_run && loaded_version >/dev/null && [[ $(loaded_version) != "$(module_version)" ]]; then
    reboot_needed "module $(loaded_version) is loaded, $(module_version) is installed"
  fi
  load_module nvidia
  load_module nvidia_uvm
  service_on nvidia-persistenced.service

  end_dry_run
  prove
}

module_version() { modinfo -F version nvidia 2>/dev/null || true; }

loaded_version() {
  [[ -r /proc/driver/nvidia/version ]] || return 1
  sed -n 's/^NVRM version:.*[^0-9.]\([0-9]\{3\}\.[0-9.]*[0-9]\) .*/\1/p' /proc/driver/nvidia/version | sed -n 1p
}

install_driver() {
  dry_run || [[ -e /lib/modules/$(uname -r)/build ]] || refuse "kernel $(uname -r) has no headers here; step 20-kernel brings them"
  use_nvidia_repository
  # The pinning package first, in a transaction of its own: apt reads pins when it starts.
  install_packages "nvidia-driver-pinning-$DRIVER_VERSION"
  dry_run || [[ $(package_candidate "$DRIVER_PACKAGE") == "$DRIVER_VERSION"-* ]] ||
    refuse "apt would install $DRIVER_PACKAGE $(package_candidate "$DRIVER_PACKAGE") although $DRIVER_VERSION is pinned (apt-cache policy)"
  install_packages "$DRIVER_PACKAGE"
  dry_run || prove_built
}

# "added" or "built" is not "installed": then the module is missing after the next boot.
prove_built() {
  local status line
  line="^nvidia/$DRIVER_VERSION, $(uname -r), .*: installed"
  # The package was configured before this kernel's headers were there: then it only waits to be built.
  grep -q "$line" <<<"$(dkms status)" || dkms autoinstall -k "$(uname -r)" || true
  status=$(dkms status)
  grep -q "$line" <<<"$status" ||
    die "dkms did not install the driver for kernel $(uname -r): $(grep '^nvidia' <<<"$status" || printf 'no entry')"
}

leave_nouveau() {
  module_loaded nouveau || return 0
  would "keep nouveau away from the GPUs and reboot" && return 0
  put_file /etc/modprobe.d/gpuinfra-nouveau.conf $'blacklist nouveau\noptions nouveau modeset=0' || true
  update-initramfs -u
  reboot_needed "nouveau holds the GPUs"
}

prove() {
  local loaded answer version
  loaded=$(loaded_version) || die "/proc/driver/nvidia/version is missing: the module is not loaded"
  accepted DRIVER "$loaded" || die "module $loaded is loaded, the lock accepts $(wanted DRIVER)"
  module_fits nvidia || die "the module on disk was built for $(modinfo -F vermagic nvidia), not for $(uname -r)"
  case $DRIVER_FLAVOUR in
    open) grep -q 'Open Kernel Module' /proc/driver/nvidia/version || refuse "the proprietary module is loaded, the lock wants the open one" ;;
    proprietary) ! grep -q 'Open Kernel Module' /proc/driver/nvidia/version || refuse "the open module is loaded, the lock wants the proprietary one" ;;
    *) refuse "DRIVER_FLAVOUR is $DRIVER_FLAVOUR; allowed are open and proprietary" ;;
  esac
  command -v nvidia-smi >/dev/null || die "nvidia-smi is missing: the driver's user space is not installed"
  # Not by a query: one GPU off the bus makes every query fail, and naming that GPU is for the checks.
  answer=$(nvidia-smi --version 2>&1) || true
  version=$(sed -n 's/^NVIDIA-SMI version *: *//p' <<<"$answer")
  [[ $version == "$loaded" ]] || die "module $loaded is loaded, but nvidia-smi answers: $(head -n 1 <<<"$answer")"
  record driver "$loaded"
  record driver_flavour "$DRIVER_FLAVOUR"
  proved "driver $loaded ($DRIVER_FLAVOUR module) is loaded and user space agrees"
}

main "$@"
