# shellcheck shell=bash
# The environment in which NCCL uses the fabric, for logins, for job scripts and for the checks. Sourced by the steps of fabrics.

readonly NCCL_PROFILE=/etc/profile.d/gpuinfra-nccl.sh
# shellcheck disable=SC2034  # the steps of TCPX and TCPXO use it
readonly RECEIVE_MANAGER_RUNS=/run/gpuinfra/receive-manager

# nccl_environment TEXT: writes the shell lines that set it. Shells source the file at login; other programs source it themselves.
nccl_environment() { put_file "$NCCL_PROFILE" "# NCCL uses the fabric of this machine.
$1" || true; }

# fabric_interfaces: prints the data interfaces of Google's virtual NICs, in the order of their PCI buses.
# Ubuntu names an interface after its address, and an interface that has no driver yet gets that name later.
fabric_interfaces() {
  local device address found
  for device in /sys/bus/pci/devices/*; do
    address=${device##*/}
    [[ $(cat "$device/vendor" 2>/dev/null) == 0x1ae0 && $(cat "$device/device" 2>/dev/null) == 0x0042 ]] || continue
    [[ $address != 0000:00:* ]] || continue # the interface of the host network is on the root bus
    found=$(find "$device/net" -mindepth 1 -maxdepth 1 -printf '%f\n' 2>/dev/null | sort | sed -n 1p)
    printf '%s\n' "${found:-enp$((16#${address:5:2}))s$((16#${address:8:2}))}"
  done
}

host_interface() { awk '$2 == "00000000" && !seen++ { print $1 }' /proc/net/route; }
