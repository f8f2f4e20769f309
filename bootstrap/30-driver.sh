#!/usr/bin/env bash
# Installs NVIDIA's driver, or verifies the one in the image.
#
# Reads:  DRIVER_VERSION                  580.126.20
#         DRIVER_RANGE_MIN, _MAX          versions that an image may contain: 580.95, 581 (excluded)
#         DRIVER_FLAVOUR                  open or proprietary kernel module
#         DRIVER_PACKAGE                  nvidia-open or cuda-drivers
#         CUDA_KEYRING_URL, _SHA256       package with NVIDIA's repository and its key
# Proves: the loaded module has an accepted version and the required flavour, was built for this kernel, user space
#         reports the same version, and no GPU reports that persistence mode is off. The checks verify the number of GPUs.
# Reboots when an older module or nouveau is loaded and uses the devices.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"

readonly PERSISTENCED=nvidia-persistenced.service
readonly PERSISTENCE=/etc/systemd/system/$PERSISTENCED.d/10-gpuinfra.conf

main() {
  load_versions
  need_root
  need_tools apt-get dpkg dpkg-query modinfo modprobe lsmod systemctl uname
  need_variables DRIVER_VERSION DRIVER_FLAVOUR DRIVER_PACKAGE

  local found
  found=$(module_version)
  if [[ -z $found ]] || { interrupted && accepted DRIVER "$found"; }; then
    install_driver
    # The driver was missing at the start of this boot. Check D7 requires a later boot that loads it.
    dry_run || record driver_boot "$(installed_in_boot)"
  elif accepted DRIVER "$found"; then
    unchanged "driver $found is installed; the lock accepts $(wanted DRIVER)"
  else
    refuse "driver $found is installed, but the lock accepts $(wanted DRIVER); choose an image with that driver, or image: plain"
  fi

  leave_nouveau
  if ! dry_run && loaded_version >/dev/null && [[ $(loaded_version) != "$(module_version)" ]]; then
    reboot_needed "module $(loaded_version) is loaded, but $(module_version) is installed"
  fi
  load_module nvidia
  load_module nvidia_uvm
  keep_initialized

  end_dry_run
  prove
}

module_version() { modinfo -F version nvidia 2>/dev/null || true; }

loaded_version() {
  [[ -r /proc/driver/nvidia/version ]] || return 1
  sed -n 's/^NVRM version:.*[^0-9.]\([0-9]\{3\}\.[0-9.]*[0-9]\) .*/\1/p' /proc/driver/nvidia/version | sed -n 1p
}

install_driver() {
  dry_run || [[ -e /lib/modules/$(uname -r)/build ]] || refuse "kernel $(uname -r) has no headers; run step 20-kernel first"
  use_nvidia_repository
  # The pinning package comes first, in a separate transaction: apt reads pins when it starts.
  install_packages "nvidia-driver-pinning-$DRIVER_VERSION"
  dry_run || [[ $(package_candidate "$DRIVER_PACKAGE") == "$DRIVER_VERSION"-* ]] ||
    refuse "apt would install $DRIVER_PACKAGE $(package_candidate "$DRIVER_PACKAGE"), but $DRIVER_VERSION is pinned (see apt-cache policy)"
  install_packages "$DRIVER_PACKAGE"
  dry_run || prove_built
}

# "added" or "built" is not enough: the module would be missing after the next boot.
prove_built() {
  local status line
  line="^nvidia/$DRIVER_VERSION, $(uname -r), .*: installed"
  # If the package was configured before this kernel's headers were installed, the module must still be built.
  grep -q "$line" <<<"$(dkms status)" || dkms autoinstall -k "$(uname -r)" || true
  status=$(dkms status)
  grep -q "$line" <<<"$status" ||
    die "dkms did not install the driver for kernel $(uname -r): $(grep '^nvidia' <<<"$status" || printf 'no entry')"
}

leave_nouveau() {
  module_loaded nouveau || return 0
  would "disable nouveau and reboot" && return 0
  put_file /etc/modprobe.d/gpuinfra-nouveau.conf $'blacklist nouveau\noptions nouveau modeset=0' || true
  update-initramfs -u
  reboot_needed "nouveau uses the GPUs"
}

# The units of Ubuntu and NVIDIA start the daemon without persistence mode, so it keeps no GPU initialized, and stop it when no
# other unit needs it. DCGM reports both as a software error.
keep_initialized() {
  local command
  command=$(systemctl cat "$PERSISTENCED" 2>/dev/null | sed -n 's/^ExecStart=\(..*\)/\1/p' | tail -n 1) || true
  dry_run || [[ -n $command ]] || die "the $PERSISTENCED unit does not exist: the driver's user-space components are not completely installed"
  command=${command//--no-persistence-mode/--persistence-mode}
  if put_file "$PERSISTENCE" "[Unit]
StopWhenUnneeded=no

[Service]
ExecStart=
ExecStart=$command"; then
    dry_run || systemctl daemon-reload
  fi
  service_on "$PERSISTENCED"
  # The daemon sets the mode when it starts. It still runs with the previous command if the file is new, or if an earlier run stopped here.
  if persistence_is_off && ! would "restart $PERSISTENCED"; then
    systemctl restart "$PERSISTENCED" || die "$PERSISTENCED did not start: $(service_reason "$PERSISTENCED")"
    changed "restarted $PERSISTENCED with persistence mode"
  fi
}

# A GPU that is off the bus fails the query, and the checks identify it; only an answer counts here.
persistence_is_off() {
  command -v nvidia-smi >/dev/null &&
    grep -qxF Disabled <<<"$(nvidia-smi --query-gpu=persistence_mode --format=csv,noheader 2>/dev/null || true)"
}

prove() {
  local loaded answer version
  loaded=$(loaded_version) || die "/proc/driver/nvidia/version is missing: the module is not loaded"
  accepted DRIVER "$loaded" || die "module $loaded is loaded, but the lock accepts $(wanted DRIVER)"
  module_fits nvidia || die "the installed module was built for $(modinfo -F vermagic nvidia), not for $(uname -r)"
  case $DRIVER_FLAVOUR in
    open) grep -q 'Open Kernel Module' /proc/driver/nvidia/version || refuse "the proprietary module is loaded, but the lock requires the open one" ;;
    proprietary) ! grep -q 'Open Kernel Module' /proc/driver/nvidia/version || refuse "the open module is loaded, but the lock requires the proprietary one" ;;
    *) refuse "DRIVER_FLAVOUR is $DRIVER_FLAVOUR; allowed: open, proprietary" ;;
  esac
  command -v nvidia-smi >/dev/null || die "nvidia-smi is missing: the driver's user-space components are not installed"
  # Do not query GPUs: a GPU that is off the bus fails every query, and the checks identify that GPU.
  answer=$(nvidia-smi --version 2>&1) || true
  version=$(sed -n 's/^NVIDIA-SMI version *: *//p' <<<"$answer")
  [[ $version == "$loaded" ]] || die "module $loaded is loaded, but nvidia-smi reports: $(head -n 1 <<<"$answer")"
  ! persistence_is_off || die "nvidia-smi reports GPUs without persistence mode: $(service_reason "$PERSISTENCED")"
  record driver "$loaded"
  record driver_flavour "$DRIVER_FLAVOUR"
  proved "driver $loaded ($DRIVER_FLAVOUR module) is loaded and matches user space"
}

main "$@"
