#!/usr/bin/env bash
# Installs NVIDIA's DCGM exporter, which serves the metrics of the GPUs to Prometheus, and binds it to the node's private address.
#
# Reads:  DCGM_EXPORTER_VERSION               4.8.2-1
#         DCGM_EXPORTER_RANGE_MIN, _MAX       versions that an image may contain: 4, 5 (excluded)
#         CUDA_KEYRING_URL, _SHA256           package with NVIDIA's repository and its key
# The counters include those for ECC, row remapping, NVLink errors and throttling, which the file of the package disables.
# Proves: the private address serves a temperature, the loopback address serves nothing, and the unit runs now and at the next boot.
# The exporter uses the running nvidia-dcgm: two engines would compete for the profiling counters of the GPUs.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"

readonly PACKAGE=datacenter-gpu-manager-exporter
readonly UNIT=nvidia-dcgm-exporter.service
readonly PORT=9400
readonly QUERY=/etc/gpuinfra/metrics.curl # check M1 reads it
readonly COUNTERS=/etc/gpuinfra/dcgm-counters.csv

main() {
  load_versions
  need_root
  need_tools apt-get curl dpkg-query ip systemctl
  need_variables DCGM_EXPORTER_VERSION
  local address changed=
  address=$(private_address)
  [[ -n $address ]] || die "no route leads out of this node, so its private address is unknown (ip -4 route)"

  put_file "$QUERY" "url = \"http://$address:$PORT/metrics\"" || true
  ! put_file "$COUNTERS" "$(counters)" || changed=yes
  # Before the installation, because the package starts the exporter, which listens on all addresses by default. The package's
  # unit restarts it only after an abort and does not wait for the network, so an exporter that starts before the node has
  # its address stays down. It appends all messages to one file that nothing rotates.
  if put_file "/etc/systemd/system/$UNIT.d/gpuinfra.conf" "[Unit]
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
Environment=DCGM_EXPORTER_LISTEN=$address:$PORT DCGM_REMOTE_HOSTENGINE_INFO=localhost:5555
ExecStart=
ExecStart=/usr/bin/dcgm-exporter -f $COUNTERS
Restart=always
RestartSec=5
TimeoutStopSec=10
StandardOutput=journal
StandardError=journal"; then
    dry_run || systemctl daemon-reload
    changed=yes
  fi
  [[ -z $changed ]] || ! systemctl is-active --quiet "$UNIT" || dry_run || systemctl restart "$UNIT"
  if ! interrupted && accepted DCGM_EXPORTER "$(package_version "$PACKAGE")"; then
    unchanged "DCGM exporter $(package_version "$PACKAGE") is installed; the lock accepts $(wanted DCGM_EXPORTER)"
  else
    use_nvidia_repository
    install_packages "$PACKAGE=$DCGM_EXPORTER_VERSION"
  fi
  service_on "$UNIT"

  end_dry_run
  # The first metrics appear after the first collection, which takes up to 30 s.
  retry 4 "reading the metrics at $address:$PORT" serves_temperatures
  ! metrics_at "http://127.0.0.1:$PORT/metrics" >/dev/null ||
    die "port $PORT also answers on the loopback address; another program uses it, or another drop-in of $UNIT sets DCGM_EXPORTER_LISTEN"
  record dcgm_exporter "$(package_version "$PACKAGE")"
  proved "DCGM exporter $(package_version "$PACKAGE") serves the metrics of the GPUs at $address:$PORT"
}

# The counters that the alert rules and dashboards read. Each name is in the file of the package, where some are disabled, except
# ROW_REMAP_PENDING (field 396 of DCGM). The exporter does not start with a name that it does not know.
counters() {
  local name
  for name in SM_CLOCK MEM_CLOCK MEMORY_TEMP GPU_TEMP POWER_USAGE GPU_UTIL MEM_COPY_UTIL XID_ERRORS FB_FREE FB_USED FB_RESERVED \
    ROW_REMAP_FAILURE ROW_REMAP_PENDING; do
    printf 'DCGM_FI_DEV_%s, gauge, %s of the GPU\n' "$name" "$name"
  done
  for name in TOTAL_ENERGY_CONSUMPTION PCIE_REPLAY_COUNTER POWER_VIOLATION THERMAL_VIOLATION ECC_SBE_VOL_TOTAL ECC_DBE_VOL_TOTAL \
    ECC_SBE_AGG_TOTAL ECC_DBE_AGG_TOTAL UNCORRECTABLE_REMAPPED_ROWS CORRECTABLE_REMAPPED_ROWS NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL \
    NVLINK_CRC_DATA_ERROR_COUNT_TOTAL NVLINK_REPLAY_ERROR_COUNT_TOTAL NVLINK_RECOVERY_ERROR_COUNT_TOTAL NVLINK_BANDWIDTH_TOTAL; do
    printf 'DCGM_FI_DEV_%s, counter, %s of the GPU\n' "$name" "$name"
  done
  for name in GR_ENGINE_ACTIVE SM_ACTIVE PIPE_TENSOR_ACTIVE DRAM_ACTIVE PCIE_TX_BYTES PCIE_RX_BYTES; do
    printf 'DCGM_FI_PROF_%s, gauge, %s of the GPU\n' "$name" "$name"
  done
  printf 'DCGM_FI_DRIVER_VERSION, label, version of the driver\n'
}

serves_temperatures() {
  grep -q '^DCGM_FI_DEV_GPU_TEMP{' <<<"$(metrics_at -K "$QUERY")" || {
    echo "no line DCGM_FI_DEV_GPU_TEMP: $(service_reason "$UNIT")" >&2
    return 1
  }
}

main "$@"
