# shellcheck shell=bash
# Container images from the registry of one's own that the declaration names, and from no other. Sourced by the steps that need it.
#
# An image is pulled with the machine's own identity, and its digest is recorded, so that a tag that moved shows between nodes.

readonly DOCKER_LOGIN=/run/gpuinfra/docker

# use_docker: the daemon runs; Ubuntu's package where the image brought none.
use_docker() {
  if ! command -v docker >/dev/null; then
    install_packages docker.io
  fi
  dry_run && return 0
  systemctl is-active --quiet docker.service || systemctl start docker.service || die "docker does not start: $(service_reason docker.service)"
}

# pull_image REFERENCE: the image is here; its digest is in IMAGE_DIGEST.
pull_image() {
  local reference=$1
  if ! docker image inspect "$reference" >/dev/null 2>&1; then
    would "pull $reference" && return 0
    sign_in "${reference%%/*}"
    retry 4 "pulling $reference" docker --config "$DOCKER_LOGIN" pull --quiet "$reference"
    rm -rf -- "$DOCKER_LOGIN"
    changed "pulled $reference"
  fi
  IMAGE_DIGEST=$(docker image inspect --format '{{index .RepoDigests 0}}' "$reference")
  IMAGE_DIGEST=${IMAGE_DIGEST#*@}
}

# sign_in HOST: with a token of the machine's own, which ends within the hour and is kept in memory only.
sign_in() {
  local token
  need_tools curl python3
  token=$(curl -fsS --noproxy '*' --max-time 10 -H 'Metadata-Flavor: Google' \
    "http://${GCE_METADATA_HOST:-metadata.google.internal}/computeMetadata/v1/instance/service-accounts/default/token" |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["access_token"])' 2>/dev/null) ||
    die "the metadata server gives no token for $1; does the node have a service account that may read that registry?"
  mkdir -p "$DOCKER_LOGIN"
  chmod 700 "$DOCKER_LOGIN"
  docker --config "$DOCKER_LOGIN" login -u oauth2accesstoken --password-stdin "https://$1" <<<"$token" >/dev/null 2>&1 ||
    die "$1 does not take this node's token; it needs roles/artifactregistry.reader there"
}
