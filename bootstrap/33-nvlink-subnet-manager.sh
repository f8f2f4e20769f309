#!/usr/bin/env bash
# Installs the NVLink subnet manager, which machines with fourth-generation NVSwitch (B200, B300) need together with fabric manager.
# It runs before fabric manager, whose own precheck fails unless ib_umad is loaded and the kernel lists an InfiniBand device.
# The NVSwitches are reached over ConnectX bridges; their driver mlx5_ib is in linux-modules-extra for some kernels on AWS.
#
# Reads:  NVLSM_VERSION              2025.10.12-1; versioned by date, independent of the driver
#         NVLSM_RANGE_MIN, _MAX      versions that an image may contain: 2025, 2027 (excluded)
#         CUDA_KEYRING_URL, _SHA256  package with NVIDIA's repository and its key
# Proves: modules mlx5_ib and ib_umad are loaded now and at every boot, and nvlsm is installed. Fabric manager's unit starts it.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"

main() {
  load_versions
  need_root
  need_tools apt-get apt-cache apt-mark dpkg-query modprobe modinfo lsmod uname
  need_variables NVLSM_VERSION

  # Fabric manager's start script calls ibstat and exits with an error without it.
  if ! interrupted && accepted NVLSM "$(package_version nvlsm)" && command -v ibstat >/dev/null; then
    unchanged "nvlsm $(package_version nvlsm) is installed; the lock accepts $(wanted NVLSM)"
  else
    use_nvidia_repository
    install_packages "nvlsm=$NVLSM_VERSION" libibumad3 infiniband-diags
  fi
  local module
  for module in mlx5_ib ib_umad; do
    get_module "$module"
    load_module "$module"
  done

  end_dry_run
  accepted NVLSM "$(package_version nvlsm)" || die "nvlsm is $(package_version nvlsm), but the lock accepts $(wanted NVLSM)"
  for module in mlx5_ib ib_umad; do
    module_loaded "$module" || die "module $module is not loaded"
  done
  command -v ibstat >/dev/null || die "ibstat is missing, so the fabric manager does not start; install infiniband-diags"
  record nvlsm "$(package_version nvlsm)"
  proved "nvlsm $(package_version nvlsm) is installed, mlx5_ib and ib_umad are loaded"
}

# get_module NAME: installs the running kernel's package of additional modules, unless the kernel already has the module.
get_module() {
  local package
  package=linux-modules-extra-$(uname -r)
  ! modinfo -F vermagic "$1" >/dev/null 2>&1 || return 0
  would "install $package, because kernel $(uname -r) has no module $1" && return 0
  package_known "$package" || apt_refresh
  package_known "$package" ||
    refuse "kernel $(uname -r) has no module $1, which fabric manager needs, and no repository has $package; set software.kernel to a kernel with that package"
  install_packages "$package"
  hold "$package"
  modinfo -F vermagic "$1" >/dev/null 2>&1 || refuse "$package has no module $1, which fabric manager needs; set software.kernel to a kernel that has it"
}

main "$@"
