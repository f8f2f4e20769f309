#!/usr/bin/env bash
# Installs Ubuntu's package of node exporter, which serves the metrics of the node to Prometheus, and binds it to the node's private address.
#
# Reads:  NODE_EXPORTER_RANGE_MIN, _MAX   versions that are accepted: 1.3, 2 (excluded)
# Proves: the private address serves the facts of the node program, the loopback address serves nothing, and both units run now and at the next boot.
# Ubuntu's archive keeps only the newest package of each release, so its version is not pinned.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"

readonly PACKAGE=prometheus-node-exporter
readonly UNIT=prometheus-node-exporter.service
readonly FACTS_UNIT=gpuinfra-metrics.service
readonly PORT=9100
readonly FOLDER=/var/lib/gpuinfra-metrics
# Collectors whose metrics the alert rules and the dashboard read. The others are off, because each series uses space on the control node.
readonly COLLECTORS=(cpu diskstats filesystem infiniband loadavg meminfo netdev pressure textfile time uname vmstat)
# Network file systems can hang, so node exporter does not ask them. The other types have no space of their own. A regular expression of a unit file needs
# no end: all types that begin with these words are excluded.
readonly NOT_LOCAL='^(autofs|binfmt_misc|bpf|cgroup|configfs|debugfs|devpts|devtmpfs|efivarfs|fuse|hugetlbfs|iso9660|lustre|mqueue|nfs|nsfs|overlay|proc|pstore|ramfs|rpc_pipefs|securityfs|selinuxfs|squashfs|sysfs|tmpfs|tracefs|vfat)'
readonly OF_CONTAINERS='^/var/lib/(docker|containerd|containers|enroot)/'

main() {
  load_versions
  need_root
  need_tools apt-get curl dpkg-query ip systemctl
  need_variables NODE_EXPORTER_RANGE_MIN NODE_EXPORTER_RANGE_MAX
  local address collectors changed=
  address=$(private_address)
  [[ -n $address ]] || die "no route leads out of this node, so its private address is unknown (ip -4 route)"

  collectors=$(printf ' --collector.%s' "${COLLECTORS[@]}")
  # Before the installation, because the package starts the exporter, which listens on all addresses by default.
  if put_file "/etc/systemd/system/$UNIT.d/gpuinfra.conf" "[Unit]
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
ExecStart=
ExecStart=/usr/bin/prometheus-node-exporter --web.listen-address=$address:$PORT --collector.disable-defaults$collectors --no-collector.cpu.guest --collector.textfile.directory=$FOLDER --collector.filesystem.fs-types-exclude=$NOT_LOCAL --collector.filesystem.mount-points-exclude=$OF_CONTAINERS
Restart=always
RestartSec=5"; then
    dry_run || systemctl daemon-reload
    changed=yes
  fi
  [[ -z $changed ]] || ! systemctl is-active --quiet "$UNIT" || dry_run || systemctl restart "$UNIT"
  if ! interrupted && accepted NODE_EXPORTER "$(package_version "$PACKAGE")"; then
    unchanged "node exporter $(package_version "$PACKAGE") is installed; the lock accepts $(wanted NODE_EXPORTER)"
  else
    install_packages "$PACKAGE"
    dry_run || accepted NODE_EXPORTER "$(package_version "$PACKAGE")" ||
      die "node exporter $(package_version "$PACKAGE") is installed; the lock accepts $(wanted NODE_EXPORTER)"
  fi
  service_on "$FACTS_UNIT"
  service_on "$UNIT"

  end_dry_run
  retry 4 "reading the metrics at $address:$PORT" serves_facts "$address"
  ! metrics_at "http://127.0.0.1:$PORT/metrics" >/dev/null ||
    die "port $PORT also answers on the loopback address; another program uses it, or another drop-in of $UNIT sets the address"
  record node_exporter "$(package_version "$PACKAGE")"
  proved "node exporter $(package_version "$PACKAGE") serves the metrics of the node at $address:$PORT"
}

# The folder exists after the first round of the node program. node exporter reports a folder that it cannot read as an error.
serves_facts() {
  local found
  found=$(metrics_at "http://$1:$PORT/metrics") || true
  grep -q '^node_textfile_mtime_seconds{' <<<"$found" || {
    echo "no file in $FOLDER is served: $(service_reason "$FACTS_UNIT") $(service_reason "$UNIT")" >&2
    return 1
  }
}

main "$@"
