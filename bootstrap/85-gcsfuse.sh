#!/usr/bin/env bash
# Mounts Cloud Storage buckets with Cloud Storage FUSE, with a cache on the machine's local disks.
#
# Reads:  BUCKETS                 `name mount ro|rw cache` for each bucket, cache in GiB: data-0 /data ro 600; out-0 /out rw 600
#         GCSFUSE_VERSION         3.11.2
#         GCSFUSE_RANGE_MIN, _MAX versions that an image may contain: 3, 4 (excluded)
#         GCSFUSE_REPOSITORY, _SUITE           https://packages.cloud.google.com/apt; `gcsfuse-noble main`
#         GCSFUSE_KEY_URL, _KEY_FINGERPRINT    the repository's key; 40 hex digits
#         SCRATCH_MOUNT, SCRATCH_OF_IMAGE      mount points of the local disks (80-scratch); empty if the machine has none
#         GPUINFRA_FILE_SYSTEMS   lines of `kind mount dns_name mount_name`, from node.json; mount_name is the bucket
# Proves: each mount shows its own bucket and looks up a name in it, a writable mount returns what was written to it, and a read-only
#         mount is read-only.
# A unit mounts each bucket, so the file system's process runs in the unit instead of in this step.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"
# shellcheck source=bootstrap/lib-mounts.sh
. "${BASH_SOURCE[0]%/*}/lib-mounts.sh"
# shellcheck source=bootstrap/lib-buckets.sh
. "${BASH_SOURCE[0]%/*}/lib-buckets.sh"

readonly CLIENT=GCSFUSE PACKAGE=gcsfuse PROGRAM=gcsfuse TITLE="Cloud Storage FUSE" TYPE=fuse.gcsfuse

main() {
  load_versions
  need_root
  need_tools apt-get dpkg-query findmnt journalctl mountpoint systemctl
  need_variables BUCKETS GCSFUSE_VERSION
  mount_buckets
}

install_client() {
  need_variables GCSFUSE_REPOSITORY GCSFUSE_SUITE GCSFUSE_KEY_URL GCSFUSE_KEY_FINGERPRINT
  need_tools gpg curl
  add_repository gcsfuse "$GCSFUSE_REPOSITORY" "$GCSFUSE_SUITE" "$GCSFUSE_KEY_URL" "$GCSFUSE_KEY_FINGERPRINT"
  install_packages "gcsfuse=$GCSFUSE_VERSION"
}

# client_command MOUNT MODE CACHE BUCKET FOLDER: options of `gcsfuse --help`. Without a limit, metadata is cached forever on large
# machine types.
client_command() {
  local files=666 folders=777 options=''
  if [[ $2 == ro ]]; then
    files=444 folders=555 options=' -o ro'
  fi
  [[ -z $5 ]] || options+=" --cache-dir=$5 --file-cache-max-size-mb=$(($3 * 1024)) --temp-dir=$5/upload"
  printf '%s\n' "gcsfuse -o allow_other$options --implicit-dirs --file-mode=$files --dir-mode=$folders --metadata-cache-ttl-secs=60 $4 $1"
}

client_config() { :; }

client_folders() { printf '%s\n' "$1 $1/upload"; }

shows_bucket() { [[ $(source_of "$TYPE" "$1") == "$2" ]]; }

# The cause is at the end of the client's message, after the functions that returned it.
mount_cause() { sed -n -E '$ s/^.*(SetUpBucket|OpenBucket): //; $ p'; }

main "$@"
