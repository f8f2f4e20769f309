#!/usr/bin/env bash
# Mounts blob containers with BlobFuse, with a cache on the machine's local disks.
#
# Reads:  BUCKETS                   `name mount ro|rw cache` for each container, cache in GiB: data-0 /data ro 600; out-0 /out rw 600
#         BLOBFUSE2_VERSION         2.5.4
#         BLOBFUSE2_RANGE_MIN, _MAX versions that an image may contain: 2.5, 3 (excluded)
#         BLOBFUSE2_REPOSITORY, _SUITE         https://packages.microsoft.com/ubuntu/24.04/prod; `noble main`
#         BLOBFUSE2_KEY_URL, _KEY_FINGERPRINT  the repository's key; 40 hex digits
#         SCRATCH_MOUNT, SCRATCH_OF_IMAGE      mount points of the local disks (80-scratch); empty if the machine has none
#         GPUINFRA_FILE_SYSTEMS     lines of `kind mount dns_name mount_name`, from node.json; account and name of the container
#         GPUINFRA_CLIENT_ID        client ID of the nodes' identity, from node.json; empty if the machine has only one identity
# Proves: each mount has a process with its own configuration and looks up a name in it, a writable mount returns what was written to it,
#         and a read-only mount is read-only.
# A unit mounts each container, so the file system's process runs in the unit instead of in this step.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"
# shellcheck source=bootstrap/lib-mounts.sh
. "${BASH_SOURCE[0]%/*}/lib-mounts.sh"
# shellcheck source=bootstrap/lib-buckets.sh
. "${BASH_SOURCE[0]%/*}/lib-buckets.sh"

readonly CLIENT=BLOBFUSE2 PACKAGE=blobfuse2 PROGRAM=blobfuse2 TITLE=BlobFuse TYPE=fuse
readonly SOURCE=blobfuse2 # of every container (component/libfuse/libfuse_handler.go)
readonly ATTRIBUTES_S=30  # the kernel and the client each cache attributes for this time

main() {
  load_versions
  need_root
  need_tools apt-get dpkg-query findmnt journalctl mountpoint systemctl
  need_variables BUCKETS BLOBFUSE2_VERSION
  mount_buckets
}

install_client() {
  need_variables BLOBFUSE2_REPOSITORY BLOBFUSE2_SUITE BLOBFUSE2_KEY_URL BLOBFUSE2_KEY_FINGERPRINT
  need_tools gpg curl
  add_repository blobfuse2 "$BLOBFUSE2_REPOSITORY" "$BLOBFUSE2_SUITE" "$BLOBFUSE2_KEY_URL" "$BLOBFUSE2_KEY_FINGERPRINT"
  install_packages "blobfuse2=$BLOBFUSE2_VERSION"
}

# client_command MOUNT MODE CACHE BUCKET FOLDER CONFIG: the check for a newer version needs the internet. With the writeback cache of the
# kernel, a node does not see the size of a blob that another node changed. By default, the command waits 5 s for the mount, and
# then exits without an error.
client_command() {
  printf '%s\n' "blobfuse2 mount --disable-version-check=true --disable-writeback-cache=true --wait-for-mount=60s --config-file=$6 $1"
}

# client_config MOUNT MODE CACHE BUCKET FOLDER: keys of setup/advancedConfig.yaml. Without a disk for the cache, blocks are cached in
# memory, by default in up to 60 percent of it. cleanup-on-start: BlobFuse refuses to mount with a cache that contains files of a killed
# process. The type of the account (with or without a hierarchical namespace) is detected.
client_config() {
  local server cache=block_cache settings read_only=false
  server=$(server_at "$1")
  [[ $2 == rw ]] || read_only=true
  settings=$'  block-size-mb: 16\n  mem-size-mb: 2048\n  prefetch: 12'
  if [[ -n $5 ]]; then
    cache=file_cache
    settings="  path: $5
  max-size-mb: $(($3 * 1024))
  timeout-sec: 86400
  refresh-sec: $ATTRIBUTES_S
  cleanup-on-start: true"
  fi
  printf '%s\n' "read-only: $read_only
allow-other: true
default-working-dir: /run/gpuinfra-blobfuse2
logging:
  type: syslog
  level: log_warning
components:
  - libfuse
  - $cache
  - attr_cache
  - azstorage
libfuse:
  attribute-expiration-sec: $ATTRIBUTES_S
  entry-expiration-sec: $ATTRIBUTES_S
  negative-entry-expiration-sec: 5
$cache:
$settings
attr_cache:
  timeout-sec: $ATTRIBUTES_S
azstorage:
  account-name: ${server%%.*}
  container: $4
  endpoint: https://$server
  mode: msi
  max-retries: 3${GPUINFRA_CLIENT_ID:+
  appid: $GPUINFRA_CLIENT_ID}"
}

client_folders() { printf '%s\n' "$1"; }

shows_bucket() { [[ $(source_of "$TYPE" "$1") == "$SOURCE" ]] && runs_with "$3" "--config-file=$(config_of "$3") $1"; }

# The last error: `Error: failed to initialize new pipeline [failed to authenticate azstorage credentials with error [...]]`.
mount_cause() { sed -n 's/^Error: //p' | tail -n 1; }

main "$@"
