#!/usr/bin/env bash
# Creates the declared users (access.users) with the same IDs on each node.
#
# The declared keys are in files that only root can change, so a removed key cannot log in, and users can log in while
# the server of the home directories does not respond. sshd also accepts keys that a user adds to ~/.ssh/authorized_keys.
#
# Reads:  USERS_HOME     folder of the home directories: /home
#         NODE_USER_<n>  one user: name, ID, `sudo` or `-`, and public keys separated by `; `: alice 2001 sudo ssh-ed25519 AAAA
# Proves: each user has its ID and can write to its home directory, unless it is on a replica before a failover, sshd reads the declared keys of each user, and the
#         users with `sudo` can run commands as root.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"
# shellcheck source=bootstrap/lib-mounts.sh
. "${BASH_SOURCE[0]%/*}/lib-mounts.sh"

readonly KEYS=/etc/ssh/authorized_keys.d
readonly SSHD_CONFIG=/etc/ssh/sshd_config.d/10-gpuinfra-users.conf # sshd uses the first value that it reads
readonly SUDOERS=/etc/sudoers.d/90-gpuinfra-users
readonly CREATED=/var/lib/gpuinfra/users # names of the users that this step created, one a line

main() {
  load_versions
  need_root
  need_tools getent useradd usermod runuser sshd sudo stat
  need_variables USERS_HOME NODE_USER_0
  local variable name id sudo keys names=() administrators=()

  for variable in "${!NODE_USER_@}"; do
    read -r name id sudo keys <<<"${!variable}"
    check_ids "$name" "$id"
    names+=("$name")
    [[ $sudo != sudo ]] || administrators+=("$name")
  done
  disable_other_users "${names[@]}"
  for variable in "${!NODE_USER_@}"; do
    read -r name id sudo keys <<<"${!variable}"
    account "$name" "$id"
    home "$name" "$id"
    put_file "$KEYS/$name" "${keys//; /$'\n'}" || true
  done
  allow_sudo "${administrators[@]}"
  if put_file "$SSHD_CONFIG" "AuthorizedKeysFile .ssh/authorized_keys .ssh/authorized_keys2 $KEYS/%u"; then
    # Sessions continue, because the unit of Ubuntu has KillMode=process.
    dry_run || systemctl try-restart ssh.service
  fi

  end_dry_run
  for variable in "${!NODE_USER_@}"; do
    read -r name id sudo keys <<<"${!variable}"
    prove_user "$name" "$id" "$sudo"
    [[ $(<"$KEYS/$name") == "${keys//; /$'\n'}" ]] || die "$KEYS/$name does not contain the declared keys"
  done
  proved "declared users: ${names[*]}"
}

# check_ids NAME ID: a name and an ID that the image or another program uses cannot be changed, because files belong to IDs.
check_ids() {
  local found
  found=$(id_of passwd "$1")
  [[ -z $found || $found == "$2" ]] ||
    refuse "user $1 exists with the ID $found, but access.users declares the ID $2; declare another name, or the ID $found"
  found=$(id_of group "$1")
  [[ -z $found || $found == "$2" ]] ||
    refuse "group $1 exists with the ID $found, but access.users declares the ID $2; declare another name"
  found=$(name_of passwd "$2")
  [[ -z $found || $found == "$1" ]] ||
    refuse "the ID $2 of user $1 belongs to user $found on this node; declare another ID in access.users"
  found=$(name_of group "$2")
  [[ -z $found || $found == "$1" ]] ||
    refuse "the ID $2 of user $1 belongs to group $found on this node; declare another ID in access.users"
}

# id_of passwd|group NAME: the ID, or nothing if the name does not exist.
id_of() { getent "$1" "$2" | cut -d: -f3 || true; }

# name_of passwd|group ID: the name, or nothing if the ID is free.
name_of() { getent "$1" "$2" | cut -d: -f1 || true; }

# account NAME ID: a user without a password. An account that an earlier declaration closed is opened again.
account() {
  if [[ -z $(id_of passwd "$1") ]]; then
    would "create user $1" && return 0
    # A line without a user does no harm, and a user without a line would stay open after its removal.
    remember "$1"
    useradd --uid "$2" --user-group --no-create-home --home-dir "$USERS_HOME/$1" --shell /bin/bash --password '*' "$1"
    changed "created user $1"
  elif [[ -n $(expiry "$1") ]] && ! would "open user $1"; then
    usermod --expiredate '' "$1"
    changed "opened user $1"
  fi
}

expiry() { getent shadow "$1" | cut -d: -f8 || true; }

remember() {
  mkdir -p "${CREATED%/*}"
  grep -qxFs -- "$1" "$CREATED" || printf '%s\n' "$1" >>"$CREATED"
}

# disable_other_users NAME...: disables the users that this step created and that are no longer declared. Their files stay.
disable_other_users() {
  local name
  [[ -f $CREATED ]] || return 0
  while read -r name; do
    [[ " $* " != *" $name "* && -n $(id_of passwd "$name") && -z $(expiry "$name") ]] || continue
    would "disable user $name" && continue
    rm -f -- "$KEYS/$name"
    usermod --expiredate 1 "$name"
    changed "disabled user $name"
  done <"$CREATED"
}

# home NAME ID: creates the home directory. Several nodes can do this at the same time if the homes are on a shared file system.
home() {
  local path=$USERS_HOME/$1
  [[ ! -d $path ]] || return 0
  would "create $path" && return 0
  ! is_read_only_replica "$USERS_HOME" || return 0 # The first region creates it.
  copy_folder /etc/skel "$path" "$2"
  [[ -d $path ]] || die "cannot create the home directory $path"
  changed "created $path"
}

# allow_sudo NAME...: exactly these users can use sudo without a password, because users have no password.
allow_sudo() {
  if (($# > 0)); then
    put_file "$SUDOERS" "$(printf '%s ALL=(ALL) NOPASSWD:ALL\n' "$@")" || true
    dry_run || chmod 0440 "$SUDOERS"
  elif [[ -f $SUDOERS ]] && ! would "remove $SUDOERS"; then
    rm -f -- "$SUDOERS"
    changed "removed $SUDOERS"
  fi
}

prove_user() {
  local settings
  [[ $(id_of passwd "$1") == "$2" && $(id_of group "$1") == "$2" ]] || die "user $1 does not have the ID $2"
  runuser -u "$1" -- test -w "$USERS_HOME/$1" || is_read_only_replica "$USERS_HOME" ||
    refuse "user $1 cannot write to $USERS_HOME/$1, which belongs to the ID $(stat -c %u "$USERS_HOME/$1"); declare this ID, or change the owner"
  # Under socket activation (Ubuntu 24.04), the folder exists only while sshd runs.
  mkdir -p /run/sshd
  settings=$(sshd -T -C "user=$1,host=localhost,addr=127.0.0.1")
  [[ $settings == *" $KEYS/%u"* ]] ||
    die "sshd does not read $KEYS: $(grep -i '^authorizedkeysfile' <<<"$settings"); remove AuthorizedKeysFile from the configuration of the image"
  if [[ $3 == sudo ]]; then
    runuser -u "$1" -- sudo -n true || die "user $1 cannot use sudo"
  fi
}

main "$@"
