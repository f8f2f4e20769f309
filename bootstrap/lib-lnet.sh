# shellcheck shell=bash
# Lustre over EFA: LNet, Lustre's network, sends over some of the machine's EFA devices beside TCP. Sourced by the step that mounts.
#
# Reads:  LNET_EFA_DEVICES  how many, spread evenly over the machine's: 8 of 32; empty where Lustre goes over TCP
#
# LNet forgets what it was told at every boot, so a unit tells it again before anything is mounted.
# Mounts name the server by TCP all the same: peers tell each other their EFA addresses, and a rule prefers those.

readonly LNET_OPTIONS=/etc/modprobe.d/gpuinfra-lnet.conf
readonly LNET_UNIT=gpuinfra-lnet.service
readonly PEER_CREDITS=32 # AWS's number: FSx for Lustre guide, "Configuring EFA clients", read 2026-11-21

# lnet_over_efa: now.
lnet_over_efa() {
  local interface
  # A dry run has not installed the client that brings the tool.
  command -v lnetctl >/dev/null || ! would "let LNet use $LNET_EFA_DEVICES EFA devices" || return 0
  need_tools lnetctl
  interface=$(main_interface)
  [[ -n $interface ]] || die "no network interface has a default route, so LNet has no address beside EFA"
  put_file "$LNET_OPTIONS" "options kefalnd ipif_name=$interface" || true
  if (($(lnet_up efa) >= LNET_EFA_DEVICES)) && lnet_prefers_efa; then
    unchanged "LNet uses $LNET_EFA_DEVICES EFA devices"
  else
    would "let LNet use $LNET_EFA_DEVICES EFA devices" || tell_lnet "$interface"
  fi
}

# lnet_at_boot: by a unit, from now on.
lnet_at_boot() {
  local source=${BASH_SOURCE[0]%/*}/../units/$LNET_UNIT
  # User data puts it there too; a machine that was set up over SSH has it from here.
  if put_file "/etc/systemd/system/$LNET_UNIT" "$(<"$source")"; then
    dry_run || systemctl daemon-reload
  fi
  service_on "$LNET_UNIT"
}

# prove_lnet: after a write to what is mounted. A group rule that is missing makes Lustre fall back to TCP without a word.
prove_lnet() {
  local up received
  up=$(lnet_up efa)
  ((up >= LNET_EFA_DEVICES)) || die "LNet has $up of $LNET_EFA_DEVICES EFA devices up (lnetctl net show --net efa)"
  received=$(lnetctl net show -v --net efa | awk '$1 == "recv_count:" { sum += $2 } END { print sum + 0 }')
  ((received > 0)) ||
    die "nothing came in over EFA, so Lustre goes over TCP, at a tenth of the speed; the security groups of nodes and file system have to let all traffic in and out, each naming the other by its id"
}

tell_lnet() {
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

# lnet_up NET: how many of its addresses are up.
lnet_up() { lnetctl net show --net "$1" 2>/dev/null | awk '$1 == "status:" && $2 == "up" { up++ } END { print up + 0 }' || true; }

lnet_has() { lnetctl net show --net efa 2>/dev/null | awk -v name="$1" '$2 == name { found = 1 } END { exit !found }'; }

lnet_prefers_efa() { lnetctl udsp show 2>/dev/null | awk '$1 == "src:" && $2 ~ /^efa/ { found = 1 } END { exit !found }'; }

main_interface() {
  local name
  name=$(awk '$2 == "00000000" && !seen++ { print $1 }' /proc/net/route)
  [[ -n $name ]] || name=$(awk -F: 'NR > 2 { gsub(/ /, "", $1); if ($1 != "lo" && !seen++) print $1 }' /proc/net/dev)
  printf '%s\n' "$name"
}

# As many as are wanted, at even distances, so that each of the machine's buses carries its share.
spread_devices() {
  local names=(/sys/class/infiniband/*) number every
  [[ -e ${names[0]} ]] || die "no EFA device is in /sys/class/infiniband; is module efa loaded?"
  every=$((${#names[@]} / LNET_EFA_DEVICES))
  ((every > 0)) || die "${#names[@]} EFA devices are here, LNet is to use $LNET_EFA_DEVICES"
  for ((number = 0; number < LNET_EFA_DEVICES; number++)); do
    printf '%s\n' "${names[number * every]##*/}"
  done
}
