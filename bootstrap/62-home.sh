#!/usr/bin/env bash
# Mounts the cluster's home directories over NFS: Filestore, EFS, Azure Files.
#
# Reads:  HOME_OPTIONS           mount options on this cloud: nfsvers=3,hard,timeo=600,retrans=3
#         GPUINFRA_FILE_SYSTEMS  lines of `kind mount dns_name mount_name`, from node.json; this step uses kind `home`
# Proves: each is mounted from its own server and accepts a write.
# Home directories that the image or the cloud created on this machine are copied to the share if they are missing there,
# because the mount hides them together with their users' SSH keys.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"
# shellcheck source=bootstrap/lib-mounts.sh
. "${BASH_SOURCE[0]%/*}/lib-mounts.sh"

main() {
  load_versions
  need_root
  need_tools apt-get dpkg-query mount mountpoint findmnt cp
  need_variables HOME_OPTIONS
  local kind mount server name mounted=()

  install_packages nfs-common
  while read -r kind mount server name; do
    [[ $kind == home ]] || continue
    save_local_homes "$mount"
    mount_one nfs "$mount" "$server:$name" "$HOME_OPTIONS,$WAIT_FOR_NETWORK"
    restore_local_homes "$mount"
    mounted+=("$mount")
  done <<<"${GPUINFRA_FILE_SYSTEMS:-}"

  end_dry_run
  ((${#mounted[@]} > 0)) || refuse "node.json lists no file system of kind home, but the plan has one; replace the node"
  while read -r kind mount server name; do
    [[ $kind != home ]] || prove_mount nfs "$mount" "$server:$name"
  done <<<"${GPUINFRA_FILE_SYSTEMS:-}"
  proved "home directories at ${mounted[*]} accept writes"
}

saved_homes() { printf '/var/lib/gpuinfra/homes%s\n' "${1//\//-}"; }

save_local_homes() {
  local mount=$1 copy
  copy=$(saved_homes "$mount")
  dry_run && return 0
  mountpoint -q "$mount" || ! compgen -G "$mount/*" >/dev/null || [[ -d $copy ]] || {
    rm -rf -- "$copy.new"
    cp -a -- "$mount" "$copy.new"
    mv -T -- "$copy.new" "$copy"
  }
}

# Existing files are not overwritten: another node may have copied the home first, and its user may have changed it.
restore_local_homes() {
  local copy home
  copy=$(saved_homes "$1")
  dry_run || [[ ! -d $copy ]] && return 0
  for home in "$copy"/*/; do
    home=${home%/}
    [[ -e $1/${home##*/} ]] || {
      cp -a -- "$home" "$1/.${home##*/}.$(uname -n)"
      mv -nT -- "$1/.${home##*/}.$(uname -n)" "$1/${home##*/}"
      changed "copied the home ${home##*/} to $1"
    }
  done
  rm -rf -- "$copy"
}

main "$@"
