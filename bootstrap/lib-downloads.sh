# shellcheck shell=bash
# Downloads by checksum, keys by fingerprint, signatures. Sourced by lib.sh.

# mirrored URL: the same below MIRROR_URL (https://vendor/path becomes MIRROR_URL/vendor/path), for networks without internet.
mirrored() {
  if [[ -n ${MIRROR_URL:-} && $1 == http*://* ]]; then
    printf '%s/%s\n' "${MIRROR_URL%/}" "${1#*://}"
  else
    printf '%s\n' "$1"
  fi
}

_download() {
  curl -fsS --proto '=http,https' --location --connect-timeout 20 --max-time 900 --speed-limit 1024 --speed-time 60 \
    -o "$2" "$1"
}

# download URL DEST: without a checksum; only for what a signature or a fingerprint proves afterwards.
download() {
  local url part
  url=$(mirrored "$1")
  part=$2.part
  retry 4 "downloading $url" _download "$url" "$part"
  mv -f -- "$part" "$2"
}

# fetch URL SHA256 DEST: the file with that checksum or none.
fetch() {
  local url=$1 sha256=$2 dest=$3 found
  if [[ -f $dest ]] && [[ $(file_sha256 "$dest") == "$sha256" ]]; then
    return 0
  fi
  download "$url" "$dest.new"
  found=$(file_sha256 "$dest.new")
  if [[ $found != "$sha256" ]]; then
    rm -f -- "$dest.new"
    die "$(mirrored "$url") has the SHA-256 $found, but the lock says $sha256; it is damaged or not the vendor's"
  fi
  mv -f -- "$dest.new" "$dest"
}

file_sha256() { sha256sum -- "$1" | cut -d ' ' -f 1; }

# key_fingerprints FILE: fingerprints of the primary keys in it.
key_fingerprints() {
  gpg --batch --show-keys --with-colons "$1" 2>/dev/null |
    awk -F: '$1 == "pub" { primary = 1 } $1 == "sub" { primary = 0 } $1 == "fpr" && primary { print $10; primary = 0 }'
}

# fetch_key URL FINGERPRINT DEST: a keyring that holds that key alone.
fetch_key() {
  local url=$1 fingerprint=$2 dest=$3 work found
  work=$(work_folder key)
  download "$url" "$work/key"
  found=$(key_fingerprints "$work/key")
  if [[ $found != "$fingerprint" ]]; then
    refuse "the key at $url has the fingerprint ${found:-none}, but the lock says $fingerprint; ask the vendor before trusting it"
  fi
  rm -f -- "$work/key.gpg"
  gpg --batch --dearmor -o "$work/key.gpg" "$work/key"
  mkdir -p "${dest%/*}"
  install -m 0644 "$work/key.gpg" "$dest.new"
  mv -f -- "$dest.new" "$dest"
  changed "trusted the key $fingerprint in $dest"
}

# verify_signature FILE SIGNATURE KEY_FILE FINGERPRINT: FILE is signed by that key (or its subkey) and no other.
verify_signature() {
  local file=$1 signature=$2 key=$3 fingerprint=$4 home status
  [[ $(key_fingerprints "$key") == "$fingerprint" ]] ||
    refuse "the key in $key has not the fingerprint $fingerprint that the lock names"
  home=$(mktemp -d)
  chmod 700 "$home"
  gpg --batch --homedir "$home" --import "$key" 2>/dev/null
  status=$(gpg --batch --homedir "$home" --status-fd 1 --verify "$signature" "$file" 2>/dev/null || true)
  gpgconf --homedir "$home" --kill all 2>/dev/null || true
  rm -rf -- "$home"
  grep -q "^\[GNUPG:\] VALIDSIG .*$fingerprint" <<<"$status" ||
    die "the signature of ${file##*/} does not fit the key $fingerprint; the file is damaged or not the vendor's"
}

# work_folder NAME: a folder for downloads that survives a kill and is cleaned by the last step.
work_folder() {
  local folder=/var/cache/gpuinfra/$1
  mkdir -p "$folder"
  printf '%s\n' "$folder"
}
