# shellcheck shell=bash
# Packages and repositories: installed versions, available versions, and repair after an interrupted run. Sourced by lib.sh.

readonly KEYRINGS=/etc/apt/keyrings
readonly APT_OPTIONS=(
  -y -q
  -o DPkg::Lock::Timeout=60 # `retry` waits longer, and logs which process holds the lock
  -o Acquire::Retries=3
  -o Dpkg::Use-Pty=0
  -o Dpkg::Options::=--force-confdef
  -o Dpkg::Options::=--force-confold
  --no-install-recommends
)

# package_version NAME: prints the installed version, or nothing if the package is not completely installed.
package_version() {
  local status version
  while IFS=$'\t' read -r status version; do
    [[ $status != ?i* ]] || printf '%s\n' "$version"
  done < <(dpkg-query -W -f='${db:Status-Abbrev}\t${Version}\n' "$1" 2>/dev/null || true) | sed -n 1p
}

# packages_matching GLOB...: prints the names of installed packages that match.
packages_matching() {
  local status name
  while IFS=$'\t' read -r status name; do
    [[ $status != ?i* ]] || printf '%s\n' "$name"
  done < <(dpkg-query -W -f='${db:Status-Abbrev}\t${Package}\n' "$@" 2>/dev/null || true) | sort -u
}

# package_known NAME: true if apt has a candidate.
package_known() { [[ -n $(package_candidate "$1") ]]; }

# package_candidate NAME: prints the version that apt would install, or nothing.
package_candidate() {
  local candidate
  candidate=$(apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: //p')
  [[ $candidate == "(none)" ]] || printf '%s\n' "$candidate"
}

# package_versions NAME: prints all available versions, newest first.
package_versions() { apt-cache madison "$1" 2>/dev/null | awk -F '|' '{ gsub(/ /, "", $2); print $2 }'; }

# offered NAME[=VERSION]: true if the package is available.
offered() {
  [[ $1 == *=* ]] || {
    package_known "$1"
    return
  }
  grep -qxF -- "${1#*=}" <<<"$(package_versions "${1%%=*}")"
}

# apt_refresh: updates the package lists, once per step.
apt_refresh() {
  [[ -z ${_APT_REFRESHED:-} ]] || return 0
  retry 4 "reading the package lists" apt-get "${APT_OPTIONS[@]}" -o APT::Update::Error-Mode=any update
  _APT_REFRESHED=1
}

# repair_packages [SPEC...]: completes an interrupted installation. SPECs are the packages that the step installs next. Configuring
# is not enough if the run was killed between a package and its dependency. Then apt must install the missing package.
repair_packages() {
  local name version torn=()
  # dpkg's own journal is left: apt refuses to work until dpkg has processed it, even if no package is broken.
  [[ -n $(dpkg --audit 2>/dev/null) ]] || compgen -G '/var/lib/dpkg/updates/[0-9]*' >/dev/null || return 0
  would "complete half-installed packages" && return 0
  (retry 1 "configuring half-installed packages" dpkg --force-confdef --force-confold --configure -a) || true
  if [[ -n $(dpkg --audit) ]]; then
    apt_refresh
    # A partly unpacked package must be unpacked again; --fix-broken alone does not do that.
    # Without a version apt installs the vendor's newest, which conflicts with the rest of the set and the lock.
    while IFS=$'\t' read -r name version; do
      if [[ " ${*%%=*} " == *" $name "* ]]; then
        torn+=("$@")
      elif offered "$name=$version"; then
        torn+=("$name=$version")
      else
        torn+=("$name")
      fi
    done < <(dpkg-query -W -f='${db:Status-Abbrev}\t${Package}\t${Version}\n' 2>/dev/null | sed -n 's/^..R\t//p')
    retry 2 "repairing half-installed packages" \
      apt-get "${APT_OPTIONS[@]}" --allow-downgrades --allow-change-held-packages --fix-broken --reinstall install "${torn[@]}"
  fi
  [[ -z $(dpkg --audit) ]] || die "packages are still half installed: $(dpkg --audit | sed -n 's/^ \([a-z0-9]\)/\1/p' | sed -n 1p)"
  changed "completed packages that an interrupted run left half installed"
}

# install_packages SPEC...: NAME, NAME=VERSION or NAME=GLOB; installs those that are missing or have another version.
install_packages() {
  local spec name version installed missing=()
  for spec in "$@"; do
    name=${spec%%=*}
    version=
    [[ $spec != *=* ]] || version=${spec#*=}
    installed=$(package_version "$name")
    # shellcheck disable=SC2053  # the version may be a glob
    [[ -n $installed && (-z $version || $installed == $version) ]] || missing+=("$spec")
  done
  if ((${#missing[@]} == 0)); then
    unchanged "installed: $*"
    return 0
  fi
  would "install ${missing[*]}" && return 0
  begin_installing
  repair_packages "${missing[@]}"
  apt_refresh
  retry 3 "installing ${missing[*]}" \
    apt-get "${APT_OPTIONS[@]}" --allow-downgrades --allow-change-held-packages install "${missing[@]}"
  changed "installed ${missing[*]}"
}

# install_files PREFIX WHAT: installs package files that are in no repository. PREFIX_DEBS lists them as `URL SHA256; URL SHA256`.
install_files() {
  local list=$1_DEBS what=$2 work url sha256 debs=()
  would "install $what" && return 0
  need_variables "$list"
  need_tools curl
  work=$(work_folder "${1,,}")
  while read -r url sha256; do
    [[ -n $url ]] || continue
    fetch "$url" "$sha256" "$work/${url##*/}"
    debs+=("$work/${url##*/}")
  done <<<"${!list//;/$'\n'}"
  begin_installing
  repair_packages
  apt_refresh
  retry 3 "installing $what" apt-get "${APT_OPTIONS[@]}" install "${debs[@]}"
  changed "installed $what"
}

# install_signed PREFIX WHAT SUFFIX: installs the package file at PREFIX_URL, whose signature is at the same address with .SUFFIX, by the key at PREFIX_KEY_URL.
install_signed() {
  local url=$1_URL version=$1_VERSION key_url=$1_KEY_URL fingerprint=$1_KEY_FINGERPRINT what=$2 work deb
  need_variables "$url" "$version" "$key_url" "$fingerprint"
  need_tools gpg curl
  would "install $what ${!version}" && return 0
  work=$(work_folder "${1,,}")
  deb=$work/${!url##*/}
  download "${!url}" "$deb"
  download "${!url}.$3" "$deb.$3"
  download "${!key_url}" "$work/keys"
  verify_signature "$deb" "$deb.$3" "$work/keys" "${!fingerprint}"
  begin_installing
  repair_packages
  apt_refresh
  retry 3 "installing ${deb##*/}" apt-get "${APT_OPTIONS[@]}" --allow-downgrades --allow-change-held-packages install "$deb"
  changed "installed $what ${!version}"
}

# hold PACKAGE...: holds the packages, so that apt does not change them.
hold() {
  local name held todo=()
  held=$(apt-mark showhold)
  for name in "$@"; do
    grep -qxF -- "$name" <<<"$held" || todo+=("$name")
  done
  ((${#todo[@]} > 0)) || return 0
  would "hold ${todo[*]}" && return 0
  retry 3 "holding ${todo[*]}" apt-mark hold "${todo[@]}"
  changed "held ${todo[*]}"
}

# add_repository NAME URI SUITE_AND_COMPONENTS KEY_URL FINGERPRINT: adds a repository that must be signed by that key.
add_repository() {
  local name=$1 uri suite=$3 key_url=$4 fingerprint=$5 keyring=$KEYRINGS/$1.gpg
  uri=$(mirrored "$2")
  if ! [[ -s $keyring ]] || [[ $(key_fingerprints "$keyring") != *"$fingerprint"* ]]; then
    would "trust the key $fingerprint for repository $name" || fetch_key "$key_url" "$fingerprint" "$keyring"
  fi
  if put_file "/etc/apt/sources.list.d/$name.list" "deb [signed-by=$keyring] $uri $suite"; then
    unset _APT_REFRESHED
  fi
}

# use_nvidia_repository: installs the package with its key and list. CUDA_KEYRING_URL, CUDA_KEYRING_SHA256.
use_nvidia_repository() {
  local deb
  if [[ -z $(package_version cuda-keyring) ]]; then
    would "add NVIDIA's repository" && return 0
    need_variables CUDA_KEYRING_URL CUDA_KEYRING_SHA256
    need_tools curl
    deb=$(work_folder nvidia)/cuda-keyring.deb
    fetch "$CUDA_KEYRING_URL" "$CUDA_KEYRING_SHA256" "$deb"
    retry 3 "installing ${deb##*/}" dpkg -i "$deb"
    unset _APT_REFRESHED
    changed "added NVIDIA's repository"
  fi
  # Also required if the package is already installed, by the image or by a run that was killed before this point.
  point_at_mirror /etc/apt/sources.list.d/cuda-*.list
}

# point_at_mirror LIST...: rewrites repositories of vendors' packages to addresses below MIRROR_URL.
point_at_mirror() {
  local list
  [[ -n ${MIRROR_URL:-} ]] || return 0
  for list in "$@"; do
    [[ -f $list ]] || continue
    ! grep -qF "${MIRROR_URL%/}/" "$list" || continue
    would "point $list at $MIRROR_URL" && continue
    sed -Ei "s|https?://|${MIRROR_URL%/}/|" "$list"
    unset _APT_REFRESHED
    changed "pointed $list at $MIRROR_URL"
  done
}
