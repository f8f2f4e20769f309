#!/usr/bin/env bash
# Brings TCPXO (FasTrak), by which NCCL receives into GPU memory on A3 Mega and A3 High: kernel pieces, plugin, and the
# receive manager, which has to live as long as a job and is therefore started by whoever starts jobs.
#
# Reads:  TCPXO_HELPER                          dmabuf-import-helper=1.1, module import_helper by dkms
#         TCPXO_REPOSITORY, TCPXO_SUITE         https://us-apt.pkg.dev/projects/gce-ai-infra, gpudirect-tcpxo-apt
#         TCPXO_KEY_URL, TCPXO_KEY_FINGERPRINT  the repository's key; 40 hex digits
#         TCPXO_PLUGIN, TCPXO_MANAGER           images: us-central1-docker.pkg.dev/mine/gpudirect/gpudirect-tcpxo/NAME:v1.0.15
#         TCPXO_ARGUMENTS                       of the receive manager on this machine: --num_hops=2 --num_nics=8
# Proves: module import_helper is loaded and fits the kernel, the NCCL plugin and its environment lie in /var/lib/tcpxo/lib64,
#         and the image of the receive manager is here.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"
# shellcheck source=bootstrap/lib-images.sh
. "${BASH_SOURCE[0]%/*}/lib-images.sh"

readonly LIBRARIES=/var/lib/tcpxo/lib64
readonly START=/usr/local/sbin/gpuinfra-tcpxo
readonly SOURCE=/usr/src/dmabuf-import-helper-1.1/import-helper.c

main() {
  load_versions
  need_root
  need_tools apt-get dpkg dpkg-query modprobe modinfo lsmod systemctl
  need_variables TCPXO_HELPER TCPXO_PLUGIN TCPXO_MANAGER TCPXO_ARGUMENTS

  bring_helper
  show_apertures
  use_docker
  bring_plugin
  would "pull $TCPXO_MANAGER, where it is not here" || pull_image "$TCPXO_MANAGER"
  put_start

  end_dry_run
  module_fits import_helper || die "module import_helper was built for $(modinfo -F vermagic import_helper), not for $(uname -r)"
  module_loaded import_helper || die "module import_helper is not loaded"
  plugin_there || die "$LIBRARIES lacks the NCCL plugin or nccl-env-profile.sh; NCCL would fall back to TCP"
  record tcpxo "${TCPXO_PLUGIN##*:}"
  record tcpxo_manager "$IMAGE_DIGEST"
  proved "TCPXO ${TCPXO_PLUGIN##*:}: import_helper is loaded, NCCL's plugin is in $LIBRARIES"
}

plugin_there() { [[ -e $LIBRARIES/libnccl-net.so && -r $LIBRARIES/nccl-env-profile.sh ]]; }

# Unpacked, mended and only then configured: since Linux 6.13 a module names what it imports as a string, and the package is
# older. Configuring it untouched leaves dkms with a failed build and apt with a broken package.
bring_helper() {
  local name=${TCPXO_HELPER%%=*} version=${TCPXO_HELPER#*=} work
  if [[ $(package_version "$name") != "$version" ]] || cut_off; then
    would "install $TCPXO_HELPER" && return 0
    need_variables TCPXO_REPOSITORY TCPXO_SUITE TCPXO_KEY_URL TCPXO_KEY_FINGERPRINT
    need_tools gpg curl
    mend_source
    # Google's own recipe takes this repository unsigned (trusted=yes); here its key is pinned.
    add_repository gpudirect-tcpxo "$TCPXO_REPOSITORY" "$TCPXO_SUITE main" "$TCPXO_KEY_URL" "$TCPXO_KEY_FINGERPRINT"
    install_packages dkms
    if [[ $(package_version "$name") != "$version" ]]; then
      begin_installing
      apt_refresh
      work=$(work_folder tcpxo)
      rm -f -- "$work/$name"_*.deb
      (cd "$work" && retry 3 "downloading $TCPXO_HELPER" apt-get "${APT_OPTIONS[@]}" download "$TCPXO_HELPER")
      dpkg --unpack "$work/$name"_*.deb
      mend_source
      dpkg --configure "$name" || die "dkms does not build $name for kernel $(uname -r); read /var/lib/dkms/*/*/build/make.log"
      changed "installed $TCPXO_HELPER"
    fi
  else
    unchanged "$TCPXO_HELPER is installed"
  fi
  load_module import_helper
}

mend_source() {
  [[ -f $SOURCE ]] || return 0
  version_lt "$(uname -r | cut -d - -f 1)" 6.13 || sed -i 's/MODULE_IMPORT_NS(DMA_BUF)/MODULE_IMPORT_NS("DMA_BUF")/' "$SOURCE"
}

# The apertures are PCI functions whose resource files the plugin maps; udev shows them in one folder, as Google's recipe does.
show_apertures() {
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

# The image carries the plugin and an installer that copies it below /var/lib.
bring_plugin() {
  if plugin_there && [[ $(cat "$LIBRARIES/.gpuinfra" 2>/dev/null) == "$TCPXO_PLUGIN" ]]; then
    unchanged "TCPXO's plugin ${TCPXO_PLUGIN##*:} is in $LIBRARIES"
    return 0
  fi
  would "install the plugin of $TCPXO_PLUGIN" && return 0
  pull_image "$TCPXO_PLUGIN"
  rm -rf -- "$LIBRARIES"
  docker run --rm --network=none --volume /var/lib:/var/lib "$TCPXO_PLUGIN" install --install-nccl
  record tcpxo_plugin "$IMAGE_DIGEST"
  # What the plugin's own script leaves to the host, where interfaces are not named eth0 and apertures are shown by udev.
  printf '%s\n' 'export NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY=/dev/aperture_devices' \
    "export LD_LIBRARY_PATH=$LIBRARIES:\${LD_LIBRARY_PATH:-}" >>"$LIBRARIES/nccl-env-profile.sh"
  printf '%s\n' "$TCPXO_PLUGIN" >"$LIBRARIES/.gpuinfra"
  changed "installed the plugin of $TCPXO_PLUGIN in $LIBRARIES"
}

# For a scheduler's prolog and epilog; the pair of plugin and manager is the lock's, because they are released together.
put_start() {
  put_file "$START" "#!/usr/bin/env bash
# gpuinfra-tcpxo start|stop: the receive manager of TCPXO, before a job that uses more than one node and after it.
set -euo pipefail
case \${1:-} in
  start)
    docker run --detach --rm --name gpuinfra-tcpxo --pull=never --cap-add=NET_ADMIN --network=host --privileged --gpus all \\
      --volume /dev/dmabuf_import_helper:/dev/dmabuf_import_helper --env LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu \\
      $TCPXO_MANAGER $TCPXO_ARGUMENTS
    ;;
  stop) docker stop gpuinfra-tcpxo ;;
  *)
    echo 'gpuinfra-tcpxo start|stop' >&2
    exit 2
    ;;
esac" && ! dry_run && chmod 755 "$START"
  return 0
}

main "$@"
