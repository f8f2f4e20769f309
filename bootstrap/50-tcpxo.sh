#!/usr/bin/env bash
# Installs TCPXO (FasTrak), which lets NCCL receive into GPU memory on A3 Mega and A3 High: a kernel module, the plugin and the
# receive manager. The receive manager runs for the duration of a job, so the scheduler starts and stops it.
#
# Reads:  TCPXO_HELPER                          dmabuf-import-helper=1.1, module import_helper by dkms
#         TCPXO_REPOSITORY, TCPXO_SUITE         https://us-apt.pkg.dev/projects/gce-ai-infra, gpudirect-tcpxo-apt
#         TCPXO_KEY_URL, TCPXO_KEY_FINGERPRINT  the repository's key; 40 hex digits
#         TCPXO_PLUGIN, TCPXO_MANAGER           images: us-central1-docker.pkg.dev/mine/gpudirect/gpudirect-tcpxo/NAME:v1.0.15
#         TCPXO_ARGUMENTS                       arguments of the receive manager on this machine: --num_hops=2 --num_nics=8
# Proves: module import_helper is loaded and matches the kernel, the NCCL plugin and its environment are in /var/lib/tcpxo/lib64,
#         and the image of the receive manager is present.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"
# shellcheck source=bootstrap/lib-nccl.sh
. "${BASH_SOURCE[0]%/*}/lib-nccl.sh"
# shellcheck source=bootstrap/lib-images.sh
. "${BASH_SOURCE[0]%/*}/lib-images.sh"

readonly LIBRARIES=/var/lib/tcpxo/lib64
readonly START=/usr/local/sbin/gpuinfra-tcpxo
readonly READY_S=120 # the receive manager takes about 30 s to initialize (best-practice.md of Google's GPUDirect-TCPXO)
readonly SOURCE=/usr/src/dmabuf-import-helper-1.1/import-helper.c

main() {
  load_versions
  need_root
  need_tools apt-get dpkg dpkg-query modprobe modinfo lsmod systemctl
  need_variables TCPXO_HELPER TCPXO_PLUGIN TCPXO_MANAGER TCPXO_ARGUMENTS

  install_helper
  expose_apertures
  use_docker
  install_plugin
  pull_image "$TCPXO_MANAGER"
  write_start_script
  nccl_environment "$(tcpxo_environment)"

  end_dry_run
  module_fits import_helper || die "module import_helper was built for $(modinfo -F vermagic import_helper), not for $(uname -r)"
  module_loaded import_helper || die "module import_helper is not loaded"
  plugin_installed || die "$LIBRARIES lacks the NCCL plugin or nccl-env-profile.sh; NCCL would fall back to TCP"
  record tcpxo "${TCPXO_PLUGIN##*:}"
  record tcpxo_manager "$IMAGE_DIGEST"
  proved "TCPXO ${TCPXO_PLUGIN##*:}: import_helper is loaded, the NCCL plugin is in $LIBRARIES"
}

plugin_installed() { [[ -e $LIBRARIES/libnccl-net.so && -r $LIBRARIES/nccl-env-profile.sh ]]; }

# The package is unpacked, patched and then configured: since Linux 6.13 a module names its imports as strings, and the package
# is older. Configuring it unpatched leaves dkms with a failed build and apt with a broken package.
install_helper() {
  local name=${TCPXO_HELPER%%=*} version=${TCPXO_HELPER#*=} work
  if [[ $(package_version "$name") != "$version" ]] || interrupted; then
    would "install $TCPXO_HELPER" && return 0
    need_variables TCPXO_REPOSITORY TCPXO_SUITE TCPXO_KEY_URL TCPXO_KEY_FINGERPRINT
    need_tools gpg curl
    patch_source
    # Google's own recipe uses this repository without signatures (trusted=yes). This step pins its key.
    add_repository gpudirect-tcpxo "$TCPXO_REPOSITORY" "$TCPXO_SUITE main" "$TCPXO_KEY_URL" "$TCPXO_KEY_FINGERPRINT"
    install_packages dkms
    if [[ $(package_version "$name") != "$version" ]]; then
      begin_installing
      apt_refresh
      work=$(work_folder tcpxo)
      rm -f -- "$work/$name"_*.deb
      (cd "$work" && retry 3 "downloading $TCPXO_HELPER" apt-get "${APT_OPTIONS[@]}" download "$TCPXO_HELPER")
      retry 3 "unpacking $name" dpkg --unpack "$work/$name"_*.deb
      patch_source
      retry 2 "configuring $name for kernel $(uname -r)" dpkg --configure "$name"
      changed "installed $TCPXO_HELPER"
    fi
  else
    unchanged "$TCPXO_HELPER is installed"
  fi
  load_module import_helper
}

patch_source() {
  [[ -f $SOURCE ]] || return 0
  version_lt "$(uname -r | cut -d - -f 1)" 6.13 || sed -i 's/MODULE_IMPORT_NS(DMA_BUF)/MODULE_IMPORT_NS("DMA_BUF")/' "$SOURCE"
}

# The apertures are PCI functions whose resource files the plugin maps; udev exposes them in one folder, as in Google's recipe.
expose_apertures() {
  if put_file /etc/udev/rules.d/90-gpuinfra-apertures.rules \
    'ACTION=="add", SUBSYSTEM=="pci", ATTR{vendor}=="0x1ae0", ATTR{device}=="0x0084", TAG+="systemd", \
  RUN+="/usr/bin/mkdir --mode=0755 -p /dev/aperture_devices", \
  RUN+="/usr/bin/systemd-mount --type=none --options=bind --collect %S/%p /dev/aperture_devices/%k", \
  RUN+="/usr/bin/bash -c '"'"'/usr/bin/chmod 0666 /dev/aperture_devices/%k/resource*'"'"'"'; then
    dry_run || {
      udevadm control --reload
      udevadm trigger --action=add --subsystem-match=pci --attr-match=vendor=0x1ae0
    }
  fi
}

# The image contains the plugin and an installer that copies it below /var/lib.
install_plugin() {
  if plugin_installed && [[ $(cat "$LIBRARIES/.gpuinfra" 2>/dev/null) == "$TCPXO_PLUGIN" ]]; then
    unchanged "the TCPXO plugin ${TCPXO_PLUGIN##*:} is in $LIBRARIES"
    return 0
  fi
  would "install the plugin from $TCPXO_PLUGIN" && return 0
  pull_image "$TCPXO_PLUGIN"
  rm -rf -- "$LIBRARIES"
  docker run --rm --network=none --volume /var/lib:/var/lib "$TCPXO_PLUGIN" install --install-nccl
  record tcpxo_plugin "$IMAGE_DIGEST"
  # Settings that the plugin's own script leaves to the host, where interfaces are not named eth0 and udev exposes the apertures.
  printf '%s\n' 'export NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY=/dev/aperture_devices' \
    "export LD_LIBRARY_PATH=$LIBRARIES:\${LD_LIBRARY_PATH:-}" >>"$LIBRARIES/nccl-env-profile.sh"
  printf '%s\n' "$TCPXO_PLUGIN" >"$LIBRARIES/.gpuinfra"
  changed "installed the plugin from $TCPXO_PLUGIN in $LIBRARIES"
}

# The plugin's script requires NCCL_LIB_DIR and names other interfaces. Without the receive manager NCCL would find no network.
tcpxo_environment() {
  local host data
  host=$(host_interface)
  data=$(fabric_interfaces | paste -sd , -)
  printf '%s\n' "if [ -e $RECEIVE_MANAGER_RUNS ]; then" "  export NCCL_LIB_DIR=$LIBRARIES" "  . $LIBRARIES/nccl-env-profile.sh" \
    "  export NCCL_SOCKET_IFNAME=$host NCCL_FASTRAK_CTRL_DEV=$host NCCL_FASTRAK_IFNAME=$data" "fi"
}

# A script for a scheduler's prolog and epilog. The lock pins plugin and manager as a pair, because they are released together.
# The plugin waits 30 s for the manager (FASTRAK_RXDM_INIT_TIMEOUT), and then NCCL uses sockets. start therefore returns when the
# manager is ready; it prints a line (WriteRxDMHealthyLog, google/nccl-plugin-gpudirect-tcpxo v1.0.12 to v1.0.17, retrieved 2026-11-22).
write_start_script() {
  put_file "$START" "#!/usr/bin/env bash
# gpuinfra-tcpxo start|stop: the receive manager of TCPXO, before a job that uses more than one node and after it.
set -euo pipefail
case \${1:-} in
  start)
    docker run --detach --rm --name gpuinfra-tcpxo --pull=never --cap-add=NET_ADMIN --network=host --privileged --gpus all \\
      --volume /dev/dmabuf_import_helper:/dev/dmabuf_import_helper --env LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu \\
      $TCPXO_MANAGER $TCPXO_ARGUMENTS
    while [[ \${log:-} != *'Buffer manager initialization completed'* ]]; do
      if ! log=\$(docker logs gpuinfra-tcpxo 2>&1) || ((SECONDS >= $READY_S)); then
        echo \"the receive manager is not ready after \$SECONDS s: \${log##*\$'\\n'}\" >&2
        docker stop gpuinfra-tcpxo >&2 || true
        exit 1
      fi
      sleep 1
    done
    mkdir -p ${RECEIVE_MANAGER_RUNS%/*} && touch $RECEIVE_MANAGER_RUNS
    ;;
  stop)
    rm -f $RECEIVE_MANAGER_RUNS
    docker stop gpuinfra-tcpxo
    ;;
  *)
    echo 'gpuinfra-tcpxo start|stop' >&2
    exit 2
    ;;
esac" && ! dry_run && chmod 755 "$START"
  return 0
}

main "$@"
