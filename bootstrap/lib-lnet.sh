# shellcheck shell=bash
# Lustre over EFA: LNet, Lustre's network, uses some of the machine's EFA devices in addition to TCP. Sourced by the step that mounts.
#
# Reads:  LNET_EFA_DEVICES  number of devices, spread evenly over the machine's: 8 of 32; empty if Lustre uses TCP only
#
# LNet loses its configuration at every boot, so a unit configures it again before anything is mounted.
# Mounts still name the server by TCP: peers exchange their EFA addresses, and a rule prefers those.

readonly LNET_OPTIONS=/etc/modprobe.d/gpuinfra-lnet.conf
readonly LNET_UNIT=gpuinfra-lnet.service
readonly AMAZON=0x1d0f   # PCI vendor of EFA devices
readonly PEER_CREDITS=32 # AWS's value: FSx for Lustre guide, "Configuring EFA clients", retrieved 2026-11-21

# lnet_over_efa: configures LNet now.
lnet_over_efa() {
  local interface
  # In a dry run the client with this tool may not be installed yet.
  command -v lnetctl >/dev/null || ! would "configure LNet with $LNET_EFA_DEVICES EFA devices" || return 0
  need_tools lnetctl
  interface=$(main_interface)
  [[ -n $interface ]] || die "no network interface has a default route, so LNet has no TCP address"
  put_file "$LNET_OPTIONS" "options kefalnd ipif_name=$interface" || true
  if (($(lnet_up efa) >= LNET_EFA_DEVICES)) && lnet_prefers_efa; then
    unchanged "LNet uses $LNET_EFA_DEVICES EFA devices"
  else
    would "configure LNet with $LNET_EFA_DEVICES EFA devices" || configure_lnet "$interface"
  fi
}

# lnet_at_boot: enables the unit that configures LNet at every boot.
lnet_at_boot() {
  local source=${BASH_SOURCE[0]%/*}/../units/$LNET_UNIT
  # User data also installs the unit; this covers machines that were set up over SSH.
  if put_file "/etc/systemd/system/$LNET_UNIT" "$(<"$source")"; then
    dry_run || systemctl daemon-reload
  fi
  service_on "$LNET_UNIT"
}

# prove_lnet: run after a write to the mounts. If a security group rule is missing, Lustre silently falls back to TCP.
prove_lnet() {
  local up received
  up=$(lnet_up efa)
  ((up >= LNET_EFA_DEVICES)) || die "$up of $LNET_EFA_DEVICES EFA devices are up in LNet (lnetctl net show --net efa)"
  received=$(lnetctl net show -v --net efa | awk '$1 == "recv_count:" { sum += $2 } END { print sum + 0 }')
  ((received > 0)) ||
    die "no messages were received over EFA, so Lustre uses TCP, at a tenth of the speed; the security groups of the nodes and the file system must allow all traffic in both directions, and each must reference the other by its ID"
}

configure_lnet() {
  local device
  load_module kefalnd
  lnetctl lnet configure
  (($(lnet_up tcp) > 0)) || lnetctl net add --net tcp --if "$1"
  while read -r device; do
    lnet_has "$device" || lnetctl net add --net efa --if "$device" --peer-credits "$PEER_CREDITS"
  done < <(spread_devices)
  lnetctl set discovery 1
  lnet_prefers_efa || lnetctl udsp add --src efa --priority 0
  changed "LNet uses $(lnet_up efa) EFA devices"
}

# lnet_up NET: prints the number of its addresses that are up.
lnet_up() { lnetctl net show --net "$1" 2>/dev/null | awk '$1 == "status:" && $2 == "up" { up++ } END { print up + 0 }' || true; }

lnet_has() { lnetctl net show --net efa 2>/dev/null | awk -v name="$1" '$2 == name { found = 1 } END { exit !found }'; }

lnet_prefers_efa() { lnetctl udsp show 2>/dev/null | awk '$1 == "src:" && $2 ~ /^efa/ { found = 1 } END { exit !found }'; }

main_interface() {
  local name
  name=$(awk '$2 == "00000000" && !seen++ { print $1 }' /proc/net/route)
  [[ -n $name ]] || name=$(awk -F: 'NR > 2 { gsub(/ /, "", $1); if ($1 != "lo" && !seen++) print $1 }' /proc/net/dev)
  printf '%s\n' "$name"
}

# The required number of devices at even distances, so that the load is spread over the machine's buses.
spread_devices() {
  local names=() number every device
  # Machines with fourth-generation NVSwitch also list the ConnectX bridges of their switches here.
  for device in /sys/class/infiniband/*; do
    [[ $(cat "$device/device/vendor" 2>/dev/null) != "$AMAZON" ]] || names+=("$device")
  done
  ((${#names[@]} > 0)) || die "/sys/class/infiniband contains no EFA device; load the module efa"
  every=$((${#names[@]} / LNET_EFA_DEVICES))
  ((every > 0)) || die "the machine has ${#names[@]} EFA devices, but LNet requires $LNET_EFA_DEVICES"
  for ((number = 0; number < LNET_EFA_DEVICES; number++)); do
    printf '%s\n' "${names[number * every]##*/}"
  done
}
