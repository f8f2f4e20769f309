# shellcheck shell=bash
# Container images, only from the private registry in the declaration. Sourced by the steps that need it.
#
# Images are pulled with the machine's own identity. Their digests are recorded, so nodes that pulled a moved tag differ visibly.

readonly DOCKER_LOGIN=/run/gpuinfra/docker

# use_docker: starts the daemon; installs Ubuntu's package if the image has none.
use_docker() {
  if ! command -v docker >/dev/null; then
    install_packages docker.io
  fi
  dry_run && return 0
  systemctl is-active --quiet docker.service || systemctl start docker.service || die "docker does not start: $(service_reason docker.service)"
}

# pull_image REFERENCE: pulls the image if missing; IMAGE_DIGEST is its digest.
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

# sign_in HOST: signs in with a token of the machine's service account, which expires within an hour and is kept only in memory.
sign_in() {
  local token
  need_tools curl python3
  token=$(curl -fsS --noproxy '*' --max-time 10 -H 'Metadata-Flavor: Google' \
    "http://${GCE_METADATA_HOST:-metadata.google.internal}/computeMetadata/v1/instance/service-accounts/default/token" |
    python3 -I -c 'import json, sys; print(json.load(sys.stdin)["access_token"])' 2>/dev/null) ||
    die "the metadata server returned no token for $1; check that the node has a service account that can read that registry"
  mkdir -p "$DOCKER_LOGIN"
  chmod 700 "$DOCKER_LOGIN"
  docker --config "$DOCKER_LOGIN" login -u oauth2accesstoken --password-stdin "https://$1" <<<"$token" >/dev/null 2>&1 ||
    die "$1 does not accept this node's token; grant its service account roles/artifactregistry.reader there"
}
