#!/usr/bin/env bash
# Installs Amazon CloudWatch Agent, which sends the kernel log, the log of gpuinfra's units and log files to a log group of CloudWatch Logs.
#
# Reads:  CLOUDWATCH_AGENT_VERSION          1.300072.0b1766
#         CLOUDWATCH_AGENT_RANGE_MIN, _MAX  versions that an image may contain: 1.300070, 2 (excluded)
#         CLOUDWATCH_AGENT_URL              package of this release, with its signature at the same address with `.sig`
#         CLOUDWATCH_AGENT_KEY_URL, _KEY_FINGERPRINT   the key of the signature; 40 hex digits
#         LOG_FILES                         paths with `*` in the name of the file: /var/log/gpuinfra/* /var/log/app/*.log
#         GPUINFRA_LOG_GROUP                name of the log group, from node.json
# Proves: the agent accepted this configuration, and its unit runs now and at the next boot.
set -euo pipefail
# shellcheck source=bootstrap/lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"

readonly PACKAGE=amazon-cloudwatch-agent
readonly UNIT=amazon-cloudwatch-agent.service
readonly CONTROL=/opt/aws/amazon-cloudwatch-agent/bin/amazon-cloudwatch-agent-ctl
readonly CONFIG=/etc/gpuinfra/cloudwatch-agent.json
# The agent copies its configuration to this file.
readonly ACCEPTED=/opt/aws/amazon-cloudwatch-agent/etc/amazon-cloudwatch-agent.d/file_cloudwatch-agent.json

main() {
  load_versions
  need_root
  need_tools apt-get cmp dpkg-query systemctl
  need_variables CLOUDWATCH_AGENT_VERSION LOG_FILES
  [[ -n ${GPUINFRA_LOG_GROUP:-} ]] || refuse "node.json has no log group; run \`pulumi up\` with this version of gpuinfra"

  put_file "$CONFIG" "$(config)" || true
  if ! interrupted && accepted CLOUDWATCH_AGENT "$(package_version "$PACKAGE")"; then
    unchanged "CloudWatch Agent $(package_version "$PACKAGE") is installed; the lock accepts $(wanted CLOUDWATCH_AGENT)"
  else
    install_signed CLOUDWATCH_AGENT "CloudWatch Agent" sig
  fi
  cmp -s "$CONFIG" "$ACCEPTED" || would "configure CloudWatch Agent" || configure
  service_on "$UNIT"

  end_dry_run
  cmp -s "$CONFIG" "$ACCEPTED" || die "CloudWatch Agent has another configuration than $CONFIG"
  accepted CLOUDWATCH_AGENT "$(package_version "$PACKAGE")" ||
    die "CloudWatch Agent $(package_version "$PACKAGE") is installed; the lock accepts $(wanted CLOUDWATCH_AGENT)"
  systemctl is-active --quiet "$UNIT" || die "$UNIT does not run: $(service_reason "$UNIT")"
  record cloudwatch_agent "$(package_version "$PACKAGE")"
  proved "CloudWatch Agent $(package_version "$PACKAGE") sends logs to $GPUINFRA_LOG_GROUP"
}

# `-m ec2` uses the role of the machine. Without `-s`, the agent is not started.
configure() {
  local output
  output=$("$CONTROL" -a fetch-config -m ec2 -c "file:$CONFIG" 2>&1) ||
    die "CloudWatch Agent refuses $CONFIG: $(tail -n 1 <<<"$output")"
  changed "configured CloudWatch Agent"
  ! systemctl is-active --quiet "$UNIT" || systemctl restart "$UNIT"
}

# One reader of the journal for the kernel and all units of gpuinfra, because its entries match if one of the objects matches; PID 1 reports in the field UNIT
# when a unit fails. The role of the nodes can neither create a log group nor change the retention of one, so the configuration sets no retention.
config() {
  local matches='{"_TRANSPORT": "kernel"}' files='' unit file
  for unit in /etc/systemd/system/gpuinfra-*; do
    matches+=", {\"_SYSTEMD_UNIT\": \"${unit##*/}\"}, {\"_PID\": \"1\", \"UNIT\": \"${unit##*/}\"}"
  done
  set -f # the agent expands the patterns
  for file in $LOG_FILES; do
    files+="${files:+, }{\"file_path\": \"$file\", \"log_group_name\": \"$GPUINFRA_LOG_GROUP\", \"log_stream_name\": \"{instance_id}/file\", \"publish_multi_logs\": true}"
  done
  set +f
  cat <<END
{
 "agent": {"run_as_user": "root"},
 "logs": {
  "force_flush_interval": 1,
  "logs_collected": {
   "journald": {"collect_list": [{"log_group_name": "$GPUINFRA_LOG_GROUP", "log_stream_name": "{instance_id}/journal", "matches": [$matches]}]},
   "files": {"collect_list": [$files]}
  }
 }
}
END
}

main "$@"
