#!/usr/bin/env bash
# Installs Prometheus and Alertmanager on the control node, from the archives of their releases.
#
# Reads:  PROMETHEUS_VERSION             3.13.2
#         PROMETHEUS_URL, _SHA256        archive of this release
#         ALERTMANAGER_VERSION           0.33.1
#         ALERTMANAGER_URL, _SHA256      archive of this release
# Mounts: the disk with the data of both, which node.json names, as /var/lib/gpuinfra-monitoring
# Proves: both accept their configuration, run now and at the next boot, and respond on the loopback address.
# The step 92-files writes the configuration. Alertmanager starts only after the node has read the declared secrets.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"

readonly BUNDLE=${BASH_SOURCE[0]%/*}/..
readonly PROGRAMS=/opt/gpuinfra-monitoring
readonly SETTINGS=/etc/gpuinfra-monitoring

main() {
  load_versions
  need_root
  need_tools curl gzip systemctl tar
  need_variables PROMETHEUS_VERSION PROMETHEUS_URL PROMETHEUS_SHA256 ALERTMANAGER_VERSION ALERTMANAGER_URL ALERTMANAGER_SHA256

  install_release prometheus "$PROMETHEUS_VERSION" "$PROMETHEUS_URL" "$PROMETHEUS_SHA256"
  install_release alertmanager "$ALERTMANAGER_VERSION" "$ALERTMANAGER_URL" "$ALERTMANAGER_SHA256"
  # Its predecessor can still have the disk. The pauses and the attempts take up to 13 minutes.
  would "mount the disk with the data" || retry 6 "mounting the disk with the data" python3 "$BUNDLE/node.pyz" data-disk
  service_current gpuinfra-prometheus.service
  service_current gpuinfra-alertmanager.service
  service_current gpuinfra-repair.service

  end_dry_run
  checked promtool "$PROGRAMS/prometheus/promtool" check config "$SETTINGS/prometheus.yml"
  checked amtool "$PROGRAMS/alertmanager/amtool" check-config "$SETTINGS/alertmanager.yml"
  retry 4 "asking Prometheus whether it is ready" ready 9090 gpuinfra-prometheus.service
  retry 4 "asking Alertmanager whether it is ready" ready 9093 gpuinfra-alertmanager.service
  record prometheus "$PROMETHEUS_VERSION"
  record alertmanager "$ALERTMANAGER_VERSION"
  proved "Prometheus $PROMETHEUS_VERSION and Alertmanager $ALERTMANAGER_VERSION are ready"
}

# install_release NAME VERSION URL SHA256: unpacks a release to a folder of its version, and links NAME to it.
install_release() {
  local name=$1 version=$2 url=$3 sha256=$4 folder=$PROGRAMS/$1-$2 work
  if [[ -x $folder/$name && $(readlink "$PROGRAMS/$name") == "$folder" ]]; then
    unchanged "$name $version is installed"
    return 0
  fi
  would "install $name $version" && return 0
  work=$(work_folder "$name")
  fetch "$url" "$sha256" "$work/$name.tar.gz"
  rm -rf -- "$folder.new" "$folder"
  mkdir -p "$folder.new"
  tar -xzf "$work/$name.tar.gz" -C "$folder.new" --strip-components=1 --no-same-owner
  [[ -x $folder.new/$name ]] || die "the archive $url contains no program $name"
  mv -T -- "$folder.new" "$folder"
  ln -sfn "$folder" "$PROGRAMS/$name.new"
  mv -fT -- "$PROGRAMS/$name.new" "$PROGRAMS/$name"
  changed "installed $name $version"
}

# service_current UNIT: starts UNIT, or starts it again if its unit, its program or its configuration changed, as after an upgrade of a running node.
service_current() {
  local mark=$PROGRAMS/$1.sha256 now
  now=$({
    cat "/etc/systemd/system/$1" "$SETTINGS"/*
    readlink "$PROGRAMS/prometheus" "$PROGRAMS/alertmanager" || true
  } | sha256sum)
  if [[ $(cat "$mark" 2>/dev/null) != "$now" ]] && systemctl is-active --quiet "$1"; then
    would "restart $1" || {
      systemctl restart "$1" || die "$1 did not start: $(service_reason "$1")"
      changed "restarted $1, because its configuration changed"
    }
  fi
  service_on "$1"
  [[ $(cat "$mark" 2>/dev/null) == "$now" ]] || would "record the configuration of $1" || echo "$now" >"$mark"
}

# checked NAME COMMAND...: fails with the last line of the output if the command refuses the configuration.
checked() {
  local name=$1 output
  shift
  output=$("$@" 2>&1) || die "$name refuses the configuration: $(tail -n 1 <<<"$output")"
}

ready() {
  curl -fsS --noproxy '*' --max-time 10 "http://127.0.0.1:$1/-/ready" || {
    echo "no answer on port $1: $(service_reason "$2")" >&2
    return 1
  }
}

main "$@"
