#!/usr/bin/env bash
# Writes the declared files (software.files) and the declared environment variables (software.environment).
#
# It runs before the declared packages and steps, which can depend on the files.
#
# Reads:  NODE_FILE_<n>  one file: SHA-256, mode, owner, group and path. The bundle contains the content as files/<SHA-256>.
# Proves: each file has its content, mode, owner and group.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"

main() {
  load_versions
  need_root
  need_tools sha256sum stat getent chown chmod mktemp
  need_variables NODE_FILE_0
  local variable digest mode owner group path reload='' count=0

  for variable in "${!NODE_FILE_@}"; do
    read -r digest mode owner group path <<<"${!variable}"
    getent passwd "$owner" >/dev/null ||
      refuse "$path belongs to user $owner, who does not exist on this node; declare the user in access.users, or another owner in software.files"
    getent group "$group" >/dev/null ||
      refuse "$path belongs to group $group, which does not exist on this node; declare another group in software.files"
    if file_is_as_declared "$digest" "$mode" "$owner" "$group" "$path"; then
      unchanged "$path"
    else
      would "write $path" || {
        write_file "$digest" "$mode" "$owner" "$group" "$path"
        [[ $path != /etc/systemd/* ]] || reload=yes
      }
    fi
  done
  # This also applies system.conf.d to services that start later (`MANAGER_RELOAD` and `set_manager_defaults` in src/core/main.c of systemd).
  [[ -z $reload ]] || systemctl daemon-reload

  end_dry_run
  for variable in "${!NODE_FILE_@}"; do
    read -r digest mode owner group path <<<"${!variable}"
    file_is_as_declared "$digest" "$mode" "$owner" "$group" "$path" ||
      die "$path has $(stat -c 'the owner %U, the group %G and the mode %a' -- "$path"), and the SHA-256 $(file_sha256 "$path"); the declaration contains the owner $owner, the group $group, the mode $mode and the SHA-256 $digest"
    count=$((count + 1))
  done
  proved "$count declared files are written"
}

# file_is_as_declared SHA256 MODE OWNER GROUP PATH
file_is_as_declared() {
  [[ -f $5 && ! -L $5 ]] || return 1
  [[ $(stat -c '%U %G 0%a' -- "$5") == "$3 $4 0$(octal "$2")" && $(file_sha256 "$5") == "$1" ]]
}

# octal MODE: the mode as stat prints it, without leading zeros.
octal() { printf '%o\n' "$((8#$1))"; }

# write_file SHA256 MODE OWNER GROUP PATH: replaces the file in one operation. Only root can read the new file until it has its owner and mode.
write_file() {
  local source=${BASH_SOURCE[0]%/*}/../files/$1 folder=${5%/*} draft
  [[ ! -d $5 ]] || refuse "$5 is a folder on this node; declare another path in software.files" # or a link to one, such as /lib
  mkdir -p -- "${folder:-/}" || refuse "cannot create the folder ${folder:-/}, because a part of it is a file; declare another path in software.files"
  rm -f -- "${folder:-}"/.gpuinfra-?????? # of a run that was killed
  draft=$(mktemp -p "${folder:-/}" ".gpuinfra-XXXXXX")
  cat -- "$source" >"$draft"
  chown -- "$3:$4" "$draft"
  chmod -- "$2" "$draft"
  sync "$draft" 2>/dev/null || true
  mv -fT -- "$draft" "$5"
  changed "wrote $5"
}

main "$@"
