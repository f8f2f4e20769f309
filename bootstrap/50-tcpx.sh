#!/usr/bin/env bash
# Installs TCPX, which lets NCCL receive into GPU memory on A3 High and A3 Edge with Google's own kernel: the plugin and the
# receive manager. The receive manager runs for the duration of a job, so the scheduler starts and stops it.
#
# Reads:  TCPX_PLUGIN, TCPX_MANAGER  images: us-central1-docker.pkg.dev/mine/gpudirect/gpudirect-tcpx/NAME:v3.1.9
# Proves: the running kernel supports TCPX, the NCCL plugin is in /var/lib/tcpx/lib64, the image of the receive manager is present.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"
# shellcheck source=bootstrap/lib-nccl.sh
. "${BASH_SOURCE[0]%/*}/lib-nccl.sh"
# shellcheck source=bootstrap/lib-images.sh
. "${BASH_SOURCE[0]%/*}/lib-images.sh"

readonly LIBRARIES=/var/lib/tcpx/lib64
readonly SOCKETS=/run/tcpx
readonly TOPOLOGY=/etc/gpuinfra/tcpx-topology.textproto
readonly RAILS=("06:00 04:00 05:00" "0c:00 0a:00 0b:00" "86:00 84:00 85:00" "8c:00 8a:00 8b:00") # interface and its two GPUs
readonly START=/usr/local/sbin/gpuinfra-tcpx

main() {
  load_versions
  need_root
  need_tools uname systemctl
  need_variables TCPX_PLUGIN TCPX_MANAGER

  [[ $(uname -r) == *tcpx* ]] ||
    refuse "kernel $(uname -r) does not support TCPX; choose an image with Google's own kernel (linux-image-gcp-tcpx), or use TCPXO on A3 High"
  use_docker
  install_plugin
  pull_image "$TCPX_MANAGER"
  put_file "$TOPOLOGY" "$(topology)" || true
  write_start_script
  nccl_environment "$(tcpx_environment)"

  end_dry_run
  plugin_installed || die "$LIBRARIES lacks the NCCL plugin; NCCL would fall back to TCP"
  record tcpx "${TCPX_PLUGIN##*:}"
  record tcpx_manager "$IMAGE_DIGEST"
  proved "TCPX ${TCPX_PLUGIN##*:}: the NCCL plugin is in $LIBRARIES"
}

plugin_installed() { [[ -e $LIBRARIES/libnccl-net.so ]]; }

install_plugin() {
  if plugin_installed && [[ $(cat "$LIBRARIES/.gpuinfra" 2>/dev/null) == "$TCPX_PLUGIN" ]]; then
    unchanged "the TCPX plugin ${TCPX_PLUGIN##*:} is in $LIBRARIES"
    return 0
  fi
  would "install the plugin from $TCPX_PLUGIN" && return 0
  pull_image "$TCPX_PLUGIN"
  rm -rf -- "$LIBRARIES"
  docker run --rm --network=none --volume /var/lib:/var/lib "$TCPX_PLUGIN" install --install-nccl
  record tcpx_plugin "$IMAGE_DIGEST"
  printf '%s\n' "$TCPX_PLUGIN" >"$LIBRARIES/.gpuinfra"
  changed "installed the plugin from $TCPX_PLUGIN in $LIBRARIES"
}

# The GPUs that each interface serves, and its queues for them. The manager has presets for COS's interface names only, not for Ubuntu's.
topology() {
  local rail nic first second
  for rail in "${RAILS[@]}"; do
    read -r nic first second <<<"$rail"
    printf 'gpu_rxq_configs {\n  %s\n  %s\n  nic_pci_addr: "0000:%s.0"\n  ifname: "%s"\n}\n' \
      "$(queues "$first" 8 9 10 11)" "$(queues "$second" 12 13 14 15)" "$nic" "$(interface_at "0000:$nic.0")"
  done
  printf 'rss_set_size: 8\ntcpd_queue_size: 8\nmax_rx_rules: 100000\n'
}

queues() {
  local gpu=$1
  shift
  printf 'gpu_infos { gpu_pci_addr: "0000:%s.0"' "$gpu"
  printf ' queue_ids: %s' "$@"
  printf ' }'
}

interface_at() {
  local found
  found=$(find "/sys/bus/pci/devices/$1/net" -mindepth 1 -maxdepth 1 -printf '%f\n' 2>/dev/null | sort | sed -n 1p)
  printf '%s' "${found:-enp$((16#${1:5:2}))s0f0}"
}

# Google's settings for A3 High, with Ubuntu's names of the interfaces. Without the receive manager NCCL would find no network at all.
tcpx_environment() {
  local host data
  host=$(host_interface)
  data=$(fabric_interfaces | paste -sd , -)
  printf '%s\n' "if [ -e $RECEIVE_MANAGER_RUNS ]; then" \
    "  export LD_LIBRARY_PATH=$LIBRARIES\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH} NCCL_SOCKET_IFNAME=$host" \
    "  export NCCL_GPUDIRECTTCPX_CTRL_DEV=$host NCCL_GPUDIRECTTCPX_SOCKET_IFNAME=$data" \
    "  export NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX=$SOCKETS NCCL_GPUDIRECTTCPX_FORCE_ACK=0" \
    "  export NCCL_GPUDIRECTTCPX_TX_COMPLETION_NANOSLEEP=1000 NCCL_GPUDIRECTTCPX_PROGRAM_FLOW_STEERING_WAIT_MICROS=500000" \
    "  export NCCL_CROSS_NIC=0 NCCL_ALGO=Ring NCCL_PROTO=Simple NCCL_NSOCKS_PERTHREAD=4 NCCL_SOCKET_NTHREADS=1" \
    "  export NCCL_DYNAMIC_CHUNK_SIZE=524288 NCCL_P2P_NET_CHUNKSIZE=524288 NCCL_P2P_PCI_CHUNKSIZE=524288" \
    "  export NCCL_P2P_NVL_CHUNKSIZE=1048576 NCCL_BUFFSIZE=4194304 NCCL_MAX_NCHANNELS=8 NCCL_MIN_NCHANNELS=8" \
    "  export NCCL_NET_GDR_LEVEL=PIX NCCL_P2P_PXN_LEVEL=0" "fi"
}

# A script for a scheduler's prolog and epilog. The lock pins plugin and manager as a pair, because they are released together.
write_start_script() {
  put_file "$START" "#!/usr/bin/env bash
# gpuinfra-tcpx start|stop: the receive manager of TCPX, before a job that uses more than one node and after it.
set -euo pipefail
case \${1:-} in
  start)
    mkdir -p $SOCKETS
    docker run --detach --rm --name gpuinfra-tcpx --pull=never --cap-add=NET_ADMIN --network=host --privileged --gpus all \\
      --volume $SOCKETS:$SOCKETS --volume $TOPOLOGY:$TOPOLOGY:ro --entrypoint /tcpgpudmarxd/build/app/tcpgpudmarxd \\
      $TCPX_MANAGER --gpu_nic_preset manual --gpu_nic_topology $TOPOLOGY --gpu_shmem_type fd --uds_path $SOCKETS --setup_param '--verbose 128 2 0'
    mkdir -p ${RECEIVE_MANAGER_RUNS%/*} && touch $RECEIVE_MANAGER_RUNS
    ;;
  stop)
    rm -f $RECEIVE_MANAGER_RUNS
    docker stop gpuinfra-tcpx
    ;;
  *)
    echo 'gpuinfra-tcpx start|stop' >&2
    exit 2
    ;;
esac" && ! dry_run && chmod 755 "$START"
  return 0
}

main "$@"
