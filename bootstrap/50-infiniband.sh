#!/usr/bin/env bash
# Installs InfiniBand support with NVIDIA's DOCA-OFED, or verifies the one in the image.
#
# Reads:  DOCA_VERSION, DOCA_RANGE_MIN, _MAX  3.2.1; versions that an image may contain: 2.9, 4 (excluded)
#         DOCA_HOST_URL, DOCA_HOST_SHA256     the package with DOCA's repository
# Proves: DOCA-OFED has an accepted version, mlx5_ib and ib_umad are loaded for this kernel, and ib_write_bw exists; check N5 measures the devices with it.
#         The checks verify ports, their state and their rate.
# Reboots when DOCA-OFED was installed while the distribution's modules are loaded.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"
# shellcheck source=bootstrap/lib-nccl.sh
. "${BASH_SOURCE[0]%/*}/lib-nccl.sh"

main() {
  load_versions
  need_root
  need_tools apt-get dpkg dpkg-query modprobe modinfo lsmod
  need_variables DOCA_VERSION

  if ! interrupted && accepted DOCA "$(doca_version)"; then
    unchanged "DOCA-OFED $(doca_version) is installed; the lock accepts $(wanted DOCA)"
  else
    install_doca
  fi
  if ! dry_run && loaded_is_another mlx5_core; then
    reboot_needed "the loaded mlx5_core is the distribution's, but DOCA-OFED installed its own"
  fi
  # perftest is a package of DOCA-OFED; an image can lack it.
  command -v ib_write_bw >/dev/null || install_packages perftest
  load_module mlx5_ib
  load_module ib_umad
  nccl_environment "$(infiniband_environment)"
  # The cloud's GPU images have this file with the topology of the machine; NCCL reads it in every program.
  [[ -e /etc/nccl.conf ]] || put_file /etc/nccl.conf 'NCCL_IB_PCI_RELAXED_ORDERING=1
NCCL_IGNORE_CPU_AFFINITY=1' || true

  end_dry_run
  accepted DOCA "$(doca_version)" || die "DOCA-OFED is $(doca_version), but the lock accepts $(wanted DOCA)"
  command -v ib_write_bw >/dev/null || die "perftest is installed, but PATH has no ib_write_bw"
  module_fits mlx5_ib || die "module mlx5_ib was built for $(modinfo -F vermagic mlx5_ib), not for $(uname -r)"
  record doca "$(doca_version)"
  proved "DOCA-OFED $(doca_version): mlx5_ib and ib_umad are loaded"
}

# UCX would also use the RDMA device of the accelerated Ethernet interface. Devices can be missing or renamed at boot, so each login lists them.
infiniband_environment() {
  # shellcheck disable=SC2016  # the login shell expands it
  printf '%s\n' 'UCX_NET_DEVICES=$(for port in /sys/class/infiniband/*/ports/1; do
  [ "$(cat "$port/link_layer" 2>/dev/null)" != InfiniBand ] || { device=${port#/sys/class/infiniband/}; printf "%s:1," "${device%%/*}"; }
done)' 'UCX_NET_DEVICES=${UCX_NET_DEVICES%,}' 'export UCX_NET_DEVICES CUDA_DEVICE_ORDER=PCI_BUS_ID OMPI_MCA_coll_hcoll_enable=0'
}

# The version without the build suffix: 3.2.1 of 3.2.1-044000-25.10-ubuntu2204.
doca_version() { package_version doca-ofed | grep -oE '^[0-9]+\.[0-9]+\.[0-9]+' || true; }

install_doca() {
  local deb
  need_variables DOCA_HOST_URL DOCA_HOST_SHA256
  if [[ -z $(package_version doca-host) ]]; then
    would "add DOCA's repository" || {
      deb=$(work_folder doca)/doca-host.deb
      fetch "$DOCA_HOST_URL" "$DOCA_HOST_SHA256" "$deb"
      retry 3 "installing ${deb##*/}" dpkg -i "$deb"
      changed "added DOCA's repository"
    }
  fi
  point_at_mirror /etc/apt/sources.list.d/doca*.list
  # DOCA's dkms would replace the distribution's, which built the driver's module.
  put_file /etc/apt/preferences.d/gpuinfra-doca.pref \
    'Package: dkms
Pin: release l=DOCA-HOST*
Pin-Priority: -1' || true
  # Install the headers first, in a separate transaction: DOCA's modules are built when its packages are configured.
  dry_run || [[ -e /lib/modules/$(uname -r)/build ]] || refuse "kernel $(uname -r) has no headers; run step 20-kernel first"
  install_packages "doca-ofed=$DOCA_VERSION-*"
}

# True if the module loaded at boot is the distribution's while DOCA's is installed. Unloading it would also disconnect
# the accelerated Ethernet interface.
loaded_is_another() {
  [[ -r /sys/module/$1/srcversion && $(<"/sys/module/$1/srcversion") != "$(modinfo -F srcversion "$1" 2>/dev/null)" ]]
}

main "$@"
