#!/usr/bin/env bash
# Blocks access from containers to the cloud's metadata service, which returns the node's identity, on clouds without a hop limit.
#
# Reads:  METADATA_GUARDED  its addresses: 169.254.169.254 fd20:ce::254; empty if the declaration allows containers to reach it
# Proves: an nftables table drops forwarded packets to these addresses, and a unit loads it at every boot; or neither exists.
# Packets from the node itself and from containers on the host network pass: both are output, not forwarded.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"

readonly TABLE=gpuinfra_metadata
readonly RULES=/etc/gpuinfra/metadata.nft
readonly UNIT=gpuinfra-metadata.service

main() {
  load_versions
  need_root
  need_tools apt-get dpkg-query systemctl
  if [[ -n ${METADATA_GUARDED:-} ]]; then
    guard
  else
    allow
  fi
}

guard() {
  install_packages nftables
  # A changed file does not restart the unit: the check below compares the loaded rules with the required ones.
  put_file "$RULES" "$(rules)" || true
  # User data also installs the unit; this covers machines that were set up over SSH.
  if put_file "/etc/systemd/system/$UNIT" "$(<"${BASH_SOURCE[0]%/*}/../units/$UNIT")"; then
    dry_run || systemctl daemon-reload
  fi
  service_on "$UNIT"
  # The rules may have been flushed since the unit loaded them.
  if ! guarded && ! would "load $RULES"; then
    systemctl restart "$UNIT"
    changed "loaded $RULES"
  fi

  end_dry_run
  guarded || die "nft list table inet $TABLE does not drop packets forwarded to $METADATA_GUARDED: $(service_reason "$UNIT")"
  proved "packets from containers to the metadata service at $METADATA_GUARDED are dropped, now and at every boot"
}

allow() {
  if [[ -e $RULES ]] || loaded; then
    would "allow containers to reach the metadata service" || remove
  else
    unchanged "containers can reach the metadata service"
  fi

  end_dry_run
  ! loaded || die "table inet $TABLE still exists (nft list table inet $TABLE)"
  proved "containers can reach the metadata service, as declared"
}

remove() {
  systemctl disable "$UNIT" || true # an earlier run may have stopped after this
  rm -f -- "/etc/systemd/system/$UNIT" "$RULES"
  systemctl daemon-reload
  ! loaded || nft delete table inet "$TABLE"
  changed "removed the block between containers and the metadata service"
}

# The first two lines make loading idempotent. Port 53 stays open, because some metadata addresses also resolve names
# (Google's); identities are returned over TCP only.
rules() {
  local address family
  printf 'table inet %s\ndelete table inet %s\ntable inet %s {\n  chain forward {\n' "$TABLE" "$TABLE" "$TABLE"
  printf '    type filter hook forward priority -10; policy accept;\n'
  for address in $METADATA_GUARDED; do
    family=ip
    [[ $address != *:* ]] || family=ip6
    printf '    %s daddr %s tcp dport != 53 counter drop\n' "$family" "$address"
  done
  printf '  }\n}\n'
}

loaded() { command -v nft >/dev/null && nft list table inet "$TABLE" >/dev/null 2>&1; }

guarded() {
  local output address
  output=$(nft list table inet "$TABLE" 2>/dev/null) || return 1
  [[ $output == *"type filter hook forward"* ]] || return 1
  for address in $METADATA_GUARDED; do
    grep -qE "ip6? daddr ${address//./\\.} tcp dport != 53 counter packets [0-9]+ bytes [0-9]+ drop" <<<"$output" || return 1
  done
}

main "$@"
