#!/usr/bin/env bash
# Mounts S3 buckets with Mountpoint for Amazon S3, with a cache on the machine's local disks.
#
# Reads:  BUCKETS                  `name mount ro|rw cache` for each bucket, cache in GiB: data-0 /data ro 600; out-0 /out rw 600
#         MOUNTPOINT_S3_VERSION    1.24.0
#         MOUNTPOINT_S3_RANGE_MIN, _MAX versions that an image may contain: 1.18, 2 (excluded)
#         MOUNTPOINT_S3_URL        https://s3.amazonaws.com/mountpoint-s3-release/1.24.0/x86_64/mount-s3-1.24.0-x86_64.deb; with .asc, its signature
#         MOUNTPOINT_S3_KEY_URL, _KEY_FINGERPRINT   a file with the keys that sign releases, and the key of this release; 40 hex digits
#         SCRATCH_MOUNT, SCRATCH_OF_IMAGE           mount points of the local disks (80-scratch); empty if the machine has none
#         GPUINFRA_FILE_SYSTEMS    lines of `kind mount dns_name mount_name`, from node.json; mount_name is the bucket
# Proves: each mount has a process for its own bucket and looks up a name in it, a writable mount returns what was written to it, and a
#         read-only mount is read-only.
# A unit mounts each bucket, so the file system's process runs in the unit instead of in this step.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"
# shellcheck source=bootstrap/lib-mounts.sh
. "${BASH_SOURCE[0]%/*}/lib-mounts.sh"
# shellcheck source=bootstrap/lib-buckets.sh
. "${BASH_SOURCE[0]%/*}/lib-buckets.sh"

readonly CLIENT=MOUNTPOINT_S3 PACKAGE=mount-s3 PROGRAM=mount-s3 TITLE="Mountpoint for Amazon S3" TYPE=fuse
readonly SOURCE=mountpoint-s3 # of every bucket (mountpoint-s3-fs/src/fuse/config.rs of v1.23.0)

main() {
  load_versions
  need_root
  need_tools apt-get dpkg-query findmnt journalctl mountpoint systemctl
  need_variables BUCKETS MOUNTPOINT_S3_VERSION
  mount_buckets
}

install_client() {
  install_signed MOUNTPOINT_S3 "$TITLE" asc
}

# client_command MOUNT MODE CACHE BUCKET FOLDER: options of doc/CONFIGURATION.md. Metadata is cached for the same time with and without
# local disks, and a missing object for a shorter time, because jobs wait for files of other nodes.
client_command() {
  local options='--read-only --file-mode=0444 --dir-mode=0555'
  [[ $2 == ro ]] || options='--allow-delete --allow-overwrite --file-mode=0666 --dir-mode=0777'
  [[ -z $5 ]] || options+=" --cache=$5 --max-cache-size=$(($3 * 1024))"
  printf '%s\n' "mount-s3 --allow-other $options --metadata-ttl=60 --negative-metadata-ttl=5 $4 $1"
}

client_config() { :; }

client_folders() { printf '%s\n' "$1"; }

shows_bucket() { [[ $(source_of "$TYPE" "$1") == "$SOURCE" ]] && runs_with "$3" "$2 $1"; }

# The last error, with its causes: `Error: Failed to create S3 client`, `Caused by:`, `    0: initial ListObjectsV2 failed for ...`.
mount_cause() {
  awk '/^Error: / && !/ mount process$/ { said = substr($0, 8) }
    said && /^ +[^ ]/ { sub(/^ +([0-9]+: )?/, ""); said = said ": " $0 }
    END { print said }'
}

main "$@"
