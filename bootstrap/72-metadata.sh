#!/usr/bin/env bash
# Keeps containers from the cloud's metadata service, which hands out the node's identity, where the cloud cannot do it by itself.
#
# Reads:  METADATA_GUARDED  its addresses: 169.254.169.254 fd20:ce::254; empty where the declaration lets containers reach it
# Proves: a table of its own drops what is forwarded there, and a unit loads it at every boot; or that neither is there.
# What the node itself sends passes, and so does what a container on the host's network sends: both are output, not forwarded.
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
    let_through
  fi
}

guard() {
  install_packages nftables
  # Not restarted for another file: the proof below sees whether what is loaded is what is wanted.
  put_file "$RULES" "$(rules)" || true
  # User data puts it there too; a machine that was set up over SSH has it from here.
  if put_file "/etc/systemd/system/$UNIT" "$(<"${BASH_SOURCE[0]%/*}/../units/$UNIT")"; then
    dry_run || systemctl daemon-reload
  fi
  service_on "$UNIT"
  # Somebody may have flushed the rules since the unit loaded them.
  if ! guarded && ! would "load $RULES"; then
    systemctl restart "$UNIT"
    changed "loaded $RULES"
  fi

  end_dry_run
  guarded || die "nft list table inet $TABLE does not drop what is forwarded to $METADATA_GUARDED: $(service_reason "$UNIT")"
  proved "what containers send to the metadata service at $METADATA_GUARDED is dropped, now and at every boot"
}

let_through() {
  if [[ -e $RULES ]] || loaded; then
    would "let containers reach the metadata service" || remove
  else
    unchanged "nothing keeps containers from the metadata service"
  fi

  end_dry_run
  ! loaded || die "table inet $TABLE is still there (nft list table inet $TABLE)"
  proved "nothing keeps containers from the metadata service, as declared"
}

remove() {
  systemctl disable "$UNIT" || true # an earlier run may have come so far and no further
  rm -f -- "/etc/systemd/system/$UNIT" "$RULES"
  systemctl daemon-reload
  ! loaded || nft delete table inet "$TABLE"
  changed "removed what kept containers from the metadata service"
}

# The first two lines make loading it again the same as loading it once. Names are looked up at some clouds' metadata address too
# (Google's), so port 53 stays open; identities are handed out over TCP only.
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
  local said address
  said=$(nft list table inet "$TABLE" 2>/dev/null) || return 1
  [[ $said == *"type filter hook forward"* ]] || return 1
  for address in $METADATA_GUARDED; do
    grep -qE "ip6? daddr ${address//./\\.} tcp dport != 53 counter packets [0-9]+ bytes [0-9]+ drop" <<<"$said" || return 1
  done
}

main "$@"
