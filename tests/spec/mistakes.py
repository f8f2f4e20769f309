"""Declarations with one mistake, as people make them in a file: typos, wrong units and types, names that do not exist, bad addresses,
duplicates, fields that contradict each other, and broken YAML.

Each row replaces one text of a cloud's declaration. The path is the field that the finding must name; the words are part of the finding.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

AWS = """\
name: train
where: {cloud: aws, region: us-east-1, zone: use1-az4}
tags: {team: research}
duration_hours: 720
network: {cidr: 10.32.0.0/16, egress: nat, flow_log_days: 90}
software: {os: ubuntu-24.04, driver: "595", containers: [docker]}
audit: {trail: create, lock_days: 400, lock_mode: governance, log_retention_days: 365}
budget: {limit_usd_per_month: 100000, recipients: [ops@example.com], thresholds_percent: [50, 100]}
handover: {wait: floor, floor: 3, deadline_minutes: 90}
pools:
  - name: gpu
    machine: p4d.24xlarge
    capacity:
      - {kind: reserved, id: cr-0123456789abcdef0, count: 2}
      - {kind: spot, count: 2, strategy: capacity-optimized}
    disk: {size_gib: 300, iops: 4000, throughput_mib_s: 1000}
    renew: {canary: 1, at_once_percent: 25}
  - name: login
    machine: m7i.xlarge
    capacity: {kind: on_demand, count: 1}
storage:
  - {kind: lustre, mount: /scratch, capacity_gib: 4800, throughput_mb_s_per_tib: 250, bucket: auto}
  - {kind: home, mount: /home, capacity_gib: 1024}
"""

AZURE = """\
name: train
where: {cloud: azure, region: eastus, zone: "2"}
tags: {team: research}
duration_hours: 720
network: {cidr: 10.32.0.0/16, egress: nat, flow_log_days: 90}
software: {os: ubuntu-24.04, driver: "580", containers: [docker]}
audit: {trail: create, lock_days: 400, lock_mode: governance, log_retention_days: 365}
budget: {limit_usd_per_month: 100000, recipients: [ops@example.com], thresholds_percent: [50, 100]}
handover: {wait: floor, floor: 3, deadline_minutes: 90}
access: {bastion: true, evidence_from: [203.0.113.0/24]}
pools:
  - name: gpu
    machine: Standard_ND96isr_H100_v5
    capacity: {kind: on_demand, count: 4}
    disk: {size_gib: 300, iops: 4000, throughput_mib_s: 1000}
    renew: {canary: 1, at_once_percent: 25}
  - name: login
    machine: Standard_D4s_v5
    capacity: {kind: on_demand, count: 1}
storage:
  - {kind: lustre, mount: /scratch, capacity_gib: 16384, throughput_mb_s_per_tib: 250, zone: "2"}
  - {kind: home, mount: /home, capacity_gib: 1024}
"""

GCP = """\
name: train
where: {cloud: gcp, region: us-central1, zone: us-central1-a}
tags: {team: research}
duration_hours: 720
network: {cidr: 10.32.0.0/16, egress: nat, flow_log_days: 90}
software: {os: ubuntu-24.04, driver: "580", containers: [docker], registry: us-central1-docker.pkg.dev/my-project/gpudirect}
audit: {trail: create, lock_days: 400, lock_mode: governance, log_retention_days: 365}
budget: {limit_usd_per_month: 100000, recipients: [ops@example.com], thresholds_percent: [50, 100]}
handover: {wait: floor, floor: 3, deadline_minutes: 90}
access: {ssh_from: [10.0.0.0/8]}
pools:
  - name: gpu
    machine: a3-megagpu-8g
    capacity: {kind: spot, count: 4}
    disk: {size_gib: 300}
    renew: {canary: 1, at_once_percent: 25}
  - name: login
    machine: n2-standard-4
    capacity: {kind: on_demand, count: 1}
storage:
  - {kind: lustre, mount: /scratch, capacity_gib: 36000, throughput_mb_s_per_tib: 250}
  - {kind: home, mount: /home, capacity_gib: 1024}
"""

TEXTS = {"aws": AWS, "azure": AZURE, "gcp": GCP}


@dataclass(frozen=True)
class Mistake:
    """One wrong declaration."""

    cloud: str
    right: str
    wrong: str
    path: str
    """Field that the finding names."""
    words: tuple[str, ...] = ()
    """Words of the finding: the nearest valid value or the allowed values."""
    in_python: bool = True
    """False if the class of the entry reports its own fields, because it is built before its cloud is known."""

    @property
    def text(self) -> str:
        """The declaration with the mistake."""
        text = TEXTS[self.cloud]
        assert self.right in text, self.right
        return text.replace(self.right, self.wrong, 1)


def _rows(cloud: str, table: str, *, in_python: bool = True) -> list[Mistake]:
    """One row for each line `right -> wrong | path | word`. `~` stands for a line break."""
    found = []
    for line in filter(None, map(str.strip, table.splitlines())):
        edit, path, *words = (part.strip() for part in line.split(" |"))
        right, wrong = re.split(" -> ?", edit)
        found.append(Mistake(cloud, right.replace("~", "\n"), wrong.replace("~", "\n"), path, tuple(words), in_python))
    return found


COMMON = """
name: train -> nmae: train | nmae | did you mean name?
where: -> were: | were | did you mean where?
pools:~ -> pool:~ | pool | did you mean pools?
storage:~ -> storages:~ | storages | did you mean storage?
network: -> netwrok: | netwrok | did you mean network?
software: -> sofware: | sofware | did you mean software?
audit: -> audits: | audits | did you mean audit?
budget: -> bugdet: | bugdet | did you mean budget?
handover: -> hand_over: | hand_over | did you mean handover?
duration_hours: -> duration_hour: | duration_hour | did you mean duration_hours?
tags: -> tag: | tag | did you mean tags?
cidr: -> cdir: | network.cdir | did you mean cidr?
egress: -> egres: | network.egres | did you mean egress?
flow_log_days: -> flow_logs_days: | network.flow_logs_days | did you mean flow_log_days?
driver: -> drivers: | software.drivers | did you mean driver?
containers: -> container: | software.container | did you mean containers?
trail: -> trial: | audit.trial | did you mean trail?
lock_days: -> locked_days: | audit.locked_days | did you mean lock_days?
lock_mode: -> lockmode: | audit.lockmode | did you mean lock_mode?
limit_usd_per_month: -> limit_usd: | budget.limit_usd | did you mean limit_usd_per_month?
recipients: -> recipient: | budget.recipient | did you mean recipients?
thresholds_percent: -> threshold_percent: | budget.threshold_percent | did you mean thresholds_percent?
wait: floor -> waits: floor | handover.waits | did you mean wait?
floor: 3 -> flor: 3 | handover.flor | did you mean floor?
deadline_minutes: -> deadline_minute: | handover.deadline_minute | did you mean deadline_minutes?
disk: {size_gib -> disks: {size_gib | pools[0].disks | did you mean disk?
size_gib: -> size_gb: | pools[0].disk.size_gb | did you mean size_gib?
canary: -> canaries: | pools[0].renew.canaries | did you mean canary?
at_once_percent: -> at_once: | pools[0].renew.at_once | did you mean at_once_percent?
mount: /scratch -> mont: /scratch | storage[0].mont | did you mean mount?
capacity: {kind: on_demand, count: 1} -> capacity: {kind: on-demand, count: 1} | pools[1].capacity[0] | did you mean on_demand?
kind: lustre -> kind: Lustre | storage[0] | did you mean lustre?
egress: nat -> egress: igw | network.egress | nat
egress: nat -> egress: NAT | network.egress | nat
trail: create -> trail: true | audit.trail | create
lock_mode: governance -> lock_mode: gouvernance | audit.lock_mode | governance
wait: floor -> wait: some | handover.wait | floor
os: ubuntu-24.04 -> os: ubuntu2404 | software.os | ubuntu-24.04
os: ubuntu-24.04 -> os: rocky-9 | software.os | ubuntu-24.04
os: ubuntu-24.04 -> os: 24.04 | software.os | ubuntu-24.04
containers: [docker] -> containers: [podman] | software.containers[0] | docker
containers: [docker] -> containers: [pyxis] | software.containers
containers: [docker] -> containers: docker | software.containers | a list
capacity_gib: 1024 -> capacity_gib: 1 TB | storage[1].capacity_gib | a whole number
mount: /scratch -> mount: scratch | storage[0].mount | an absolute path
mount: /scratch -> mount: /scratch data | storage[0].mount
mount: /scratch -> mount: / | storage[0].mount
mount: /scratch -> mount: /etc | storage[0].mount
mount: /scratch -> mount: /home | storage[1].mount
mount: /home -> mount: $HOME | storage[1].mount
size_gib: 300 -> size_gib: 300GB | pools[0].disk.size_gib | without its unit
size_gib: 300 -> size_gib: 3 | pools[0].disk.size_gib
size_gib: 300 -> size_gib: 300000 | pools[0].disk.size_gib
canary: 1 -> canary: 100 | pools[0].renew.canary | is 100, but the pool has 4 nodes | at most
canary: 1 -> canary: first | pools[0].renew.canary | a whole number
at_once_percent: 25 -> at_once_percent: 25% | pools[0].renew.at_once_percent | a whole number
at_once_percent: 25 -> at_once_percent: 0 | pools[0].renew.at_once_percent
at_once_percent: 25 -> at_once_percent: 250 | pools[0].renew.at_once_percent | 100
cidr: 10.32.0.0/16 -> cidr: 10.32.0.0 | network.cidr
cidr: 10.32.0.0/16 -> cidr: 10.32.0.1/16 | network.cidr | set the host bits to zero: 10.32.0.0/16
cidr: 10.32.0.0/16 -> cidr: 10.32.0/16 | network.cidr
cidr: 10.32.0.0/16 -> cidr: 10.32.0.0/33 | network.cidr
cidr: 10.32.0.0/16 -> cidr: 10.320.0.0/16 | network.cidr | correct the range
cidr: 10.32.0.0/16 -> cidr: 8.8.0.0/16 | network.cidr
cidr: 10.32.0.0/16 -> cidr: 10.32.0.0/28 | network.cidr
cidr: 10.32.0.0/16 -> cidr: 10.0.0.0/8 | network.cidr
cidr: 10.32.0.0/16 -> cidr: fd00::/48 | network.cidr
cidr: 10.32.0.0/16 -> cidr: 10.32.0.0-10.32.255.255 | network.cidr
flow_log_days: 90 -> flow_log_days: 3 months | network.flow_log_days | a whole number
lock_days: 400 -> lock_days: 1y | audit.lock_days | a whole number
lock_days: 400 -> lock_days: 0 | audit.lock_days
lock_mode: governance -> lock_mode: compliance | audit.lock_mode
limit_usd_per_month: 100000 -> limit_usd_per_month: 100k | budget.limit_usd_per_month | a number
limit_usd_per_month: 100000 -> limit_usd_per_month: $100000 | budget.limit_usd_per_month | a number
limit_usd_per_month: 100000 -> limit_usd_per_month: -5 | budget.limit_usd_per_month
limit_usd_per_month: 100000 -> limit_usd_per_month: 0 | budget.limit_usd_per_month
recipients: [ops@example.com] -> recipients: ops@example.com | budget.recipients | a list
recipients: [ops@example.com] -> recipients: [ops] | budget.recipients[0] | an email address
recipients: [ops@example.com] -> recipients: ["@example.com"] | budget.recipients[0] | an email address
thresholds_percent: [50, 100] -> thresholds_percent: [0.5, 1] | budget.thresholds_percent[0]
thresholds_percent: [50, 100] -> thresholds_percent: 50 | budget.thresholds_percent | a list
thresholds_percent: [50, 100] -> thresholds_percent: [50%] | budget.thresholds_percent[0]
floor: 3 -> floor: 50 | handover.floor
, floor: 3 -> | handover.floor
floor: 3 -> floor: 60% | handover.floor | a whole number
deadline_minutes: 90 -> deadline_minutes: 90m | handover.deadline_minutes | without its unit
deadline_minutes: 90 -> deadline_minutes: 0 | handover.deadline_minutes
duration_hours: 720 -> duration_hours: 30d | duration_hours | a whole number
duration_hours: 720 -> duration_hours: -1 | duration_hours
tags: {team: research} -> tags: [team] | tags | a mapping
tags: {team: research} -> tags: {team: 5} | tags.team
tags: {team: research} -> tags: {team: [a, b]} | tags.team
tags: {team: research} -> tags: research | tags | a mapping
name: train -> name: Train | name | lowercase
name: train -> name: train_1 | name
name: train -> name: 7 | name | quotes
name: train -> name: the-training-cluster-of-our-team | name | 24 characters
name: train -> name: "" | name
name: train~ -> | name | is missing
- name: login -> - name: gpu | pools[1].name
- name: login -> - name: Login Node | pools[1].name
- name: gpu~    machine -> - machine | pools[0].name | is missing
capacity: {kind: on_demand, count: 1} -> capacity: 1 | pools[1].capacity
capacity: {kind: on_demand, count: 1} -> capacity: on_demand | pools[1].capacity
capacity: {kind: on_demand, count: 1} -> capacity: [] | pools[1].capacity
capacity: {kind: on_demand, count: 1} -> count: 1 | pools[1].count | put it in capacity
capacity: {kind: on_demand, count: 1} -> capacity: {kind: on_demand, count: {min: 1, max: 4}} | pools[1].capacity[0].count | gpuinfra has no autoscaler
capacity: {kind: on_demand, count: 1} -> capacity: {kind: on_demand, count: 1, max_count: 4} | pools[1].capacity[0].max_count | gpuinfra has no autoscaler
capacity: {kind: on_demand, count: 1} -> capacity: {kind: on_demand, count: 1}~    autoscale: true | pools[1].autoscale | set count to the number of nodes
capacity: {kind: on_demand, count: 1} -> capacity: {kind: on_demand, count: 1}~    os: rocky-9 | pools[1].os | Rocky Linux and RHEL use dnf
capacity: {kind: on_demand, count: 1} -> capacity: {kind: on_demand, count: 1}~    environment: {A: 1} | pools[1].environment.A | put the value in quotes
capacity: {kind: on_demand, count: 1} -> capacity: {kind: on_demand, count: 1}~    environment: {A-B: x} | pools[1].environment.A-B | has the name 'A-B'
capacity: {kind: on_demand, count: 1} -> capacity: {kind: on_demand, count: 1}~    environment: [A=1] | pools[1].environment | a mapping
containers: [docker] -> containers: [docker], files: [{path: /etc/a, content: x, mode: 0644}] | software.files[0].mode | put the value in quotes
containers: [docker] -> containers: [docker], files: [{path: /etc/a, content: x, mode: "755"}] | software.files[0].mode | four octal digits
containers: [docker] -> containers: [docker], files: [{path: /etc/a, mode: "4755", content: x}] | software.files[0].mode | four octal digits
containers: [docker] -> containers: [docker], files: [{path: etc/a, content: x}] | software.files[0].path | an absolute path
containers: [docker] -> containers: [docker], files: [{path: /etc/a}] | software.files[0] | set content or file
containers: [docker] -> containers: [docker], files: [{path: /etc/a, content: x, owner: Alice}] | software.files[0].owner | the name of a user
containers: [docker] -> containers: [docker], environment: {HOME: /x} | software.environment.HOME | is set by each login
capacity: {kind: on_demand, count: 1} -> capacity: {kind: on_demand, count: 1}~    fabric: efa | pools[1].fabric
capacity: {kind: on_demand, count: 1} -> capacity: {kind: on_demand, count: 1}~    fabric: required | pools[1].fabric
capacity: {kind: on_demand, count: 1} -> capacity: {kind: on_demand, count: 1}~    image: ubuntu | pools[1].image
capacity: {kind: on_demand, count: 1} -> capacity: {kind: on_demand, count: 1}~    os: windows | pools[1].os
capacity: {kind: on_demand, count: 1} -> capacity: {kind: on_demand, count: 1}~    quota_vcpus: many | pools[1].quota_vcpus
handover: {wait -> use: {site: ""}~handover: {wait | use.site
handover: {wait -> users: [alice]~handover: {wait | users
handover: {wait -> slurm: true~handover: {wait | slurm
handover: {wait -> handover: {wait: all}~handover: {wait |  | handover
count: 1} -> count: two} | pools[1].capacity[0].count | a whole number
count: 1} -> count: "2"} | pools[1].capacity[0].count | without quotes
count: 1} -> count: -2} | pools[1].capacity[0].count
count: 1} -> count: 2.5} | pools[1].capacity[0].count | a whole number
count: 1} -> count: } | pools[1].capacity[0].count
, count: 1} -> } | pools[1].capacity[0].count | is missing
count: 1} -> count: yes} | pools[1].capacity[0].count | a whole number
count: 1} -> count: [2]} | pools[1].capacity[0].count | a whole number
handover: {wait -> layers: [foundation, sites]~handover: {wait | layers[1] | site
handover: {wait -> layers: all~handover: {wait | layers | a list
"""
"""Mistakes that are possible on each cloud."""

DISKS = """
iops: -> iop: | pools[0].disk.iop | did you mean iops?
iops: 4000 -> iops: 4k | pools[0].disk.iops | a whole number
iops: 4000 -> iops: 400000 | pools[0].disk.iops
throughput_mib_s: 1000 -> throughput_mib_s: 10000 | pools[0].disk.throughput_mib_s
disk: {size_gib: 300, iops: 4000, throughput_mib_s: 1000} -> disk: 300 | pools[0].disk | a mapping
"""
"""Mistakes in the performance of a root disk. It is fixed for some machine types of Google Cloud."""

MISTAKES = [
    *(one for cloud in TEXTS for one in _rows(cloud, COMMON)),
    *(one for cloud in ("aws", "azure") for one in _rows(cloud, DISKS)),
    *_rows("aws", """
        containers: [docker] -> containers: [docker], aws_ofi_nccl: "1.16" | software.aws_ofi_nccl | the EFA installer contains | use an image
        containers: [docker] -> containers: [docker], nccl: "2.20.5" | software.nccl | allowed: 2.27.7, 2.28.3, 2.28.9
        tags: {team: research} -> tags: {team: "a;b"} | tags
        name: train -> name: sg-train | name
        region: us-east-1 -> regin: us-east-1 | where.regin | did you mean region?
        zone: use1-az4 -> zones: use1-az4 | where.zones | did you mean zone?
        machine: p4d.24xlarge -> machin: p4d.24xlarge | pools[0].machin | did you mean machine?
        strategy: -> stratgy: | pools[0].capacity[1].stratgy | did you mean strategy?
        kind: reserved -> knd: reserved | pools[0].capacity[0] | kind
        capacity_gib: 4800 -> capacity_gb: 4800 | storage[0].capacity_gb | did you mean capacity_gib?
        throughput_mb_s_per_tib: -> throughput: | storage[0].throughput | did you mean throughput_mb_s_per_tib?
        bucket: auto -> buckets: auto | storage[0].buckets | did you mean bucket?
        cloud: aws -> cloud: asw | where | did you mean aws?
        cloud: aws -> cloud: amazon | where | aws
        cloud: aws -> cloud: AWS | where | aws
        region: us-east-1 -> region: us-esat-1 | where.region | did you mean us-east-1?
        region: us-east-1 -> region: us-east1 | where.region | did you mean us-east-1?
        region: us-east-1 -> region: virginia | where.region
        region: us-east-1 -> region: us-east-1a | where.region | us-east-1
        region: us-east-1 -> region: eastus | where.region
        zone: use1-az4 -> zone: us-east-1a | where.zone | use1-az
        zone: use1-az4 -> zone: use1-az9 | where.zone | use1-az
        zone: use1-az4 -> zone: usw2-az1 | where.zone
        zone: use1-az4 -> zone: 4 | where.zone
        machine: p4d.24xlarge -> machine: p4d.24xlrage | pools[0].machine | did you mean p4d.24xlarge?
        machine: p4d.24xlarge -> machine: p4d-24xlarge | pools[0].machine | did you mean p4d.24xlarge?
        machine: p4d.24xlarge -> machine: p4d | pools[0].machine
        machine: p4d.24xlarge -> machine: a3-megagpu-8g | pools[0].machine
        machine: p4d.24xlarge -> machine: 8xA100 | pools[0].machine
        machine: m7i.xlarge -> machine: m5.xlarge | pools[1].machine
        machine: m7i.xlarge -> machine: t3.medium | pools[1].machine
        kind: reserved -> kind: reserve | pools[0].capacity[0] | did you mean reserved?
        kind: spot -> kind: Spot | pools[0].capacity[1] | did you mean spot?
        kind: spot, count: 2, strategy: capacity-optimized -> kind: flex, max_run_hours: 10, count: 2 | pools[0].capacity[1].kind
        kind: lustre -> kind: fsx | storage[0] | lustre
        kind: home -> kind: efs | storage[1] | home
        strategy: capacity-optimized -> strategy: cheapest | pools[0].capacity[1].strategy | capacity-optimized
        driver: "595" -> driver: 595 | software.driver | quotes
        driver: "595" -> driver: "600" | software.driver
        driver: "595" -> driver: latest | software.driver
        id: cr-0123456789abcdef0 -> id: cr-012345 | pools[0].capacity[0].id | cr-
        id: cr-0123456789abcdef0 -> id: i-0123456789abcdef0 | pools[0].capacity[0].id | cr-
        id: cr-0123456789abcdef0, -> | pools[0].capacity[0]
        capacity_gib: 4800 -> capacity_gib: 4.8 | storage[0].capacity_gib | a whole number
        capacity_gib: 4800 -> capacity_gib: 4800GiB | storage[0].capacity_gib | without its unit
        capacity_gib: 4800 -> capacity_gib: "4,800" | storage[0].capacity_gib | a whole number
        capacity_gib: 4800 -> capacity_gib: 0 | storage[0].capacity_gib | 1
        , capacity_gib: 4800 -> | storage[0].capacity_gib | is missing
        throughput_mb_s_per_tib: 250 -> throughput_mb_s_per_tib: 300 | storage[0].throughput_mb_s_per_tib | 250
        throughput_mb_s_per_tib: 250 -> throughput_mb_s_per_tib: 250 MB/s | storage[0].throughput_mb_s_per_tib | a whole number
        bucket: auto -> bucket: s3://my-data | storage[0].bucket
        bucket: auto -> bucket: My_Bucket | storage[0].bucket
        tags: {team: research} -> tags: {"aws:team": research} | tags
        machine: p4d.24xlarge~ -> ~ | pools[0].machine | is missing
        capacity: {kind: on_demand, count: 1} -> capacity: {kind: block, id: cr-0123456789abcdef0, count: 1, starts_at: 2026-12-08, ends_at: "2026-12-09T11:30:00Z"} | pools[1].capacity[0].starts_at
        kind: home, mount -> kind: openzfs, mount | storage[1] | use kind home with service: openzfs
        kind: home, mount -> kind: netapp, mount | storage[1] | use kind home with service: netapp
        kind: home, mount -> kind: home, service: netapp, mount | storage[1].service | which AWS does not offer; allowed: efs, openzfs
        kind: home, mount -> kind: home, throughput_mb_s: 320, mount | storage[1].throughput_mb_s | use service: openzfs
        kind: home, mount -> kind: home, service: openzfs, throughput_mb_s: 300, mount | storage[1].throughput_mb_s | use 320
        kind: home, mount -> kind: home, tier: premium, mount | storage[1].tier | each service for home directories has its own settings
        throughput_mb_s_per_tib: 250, bucket: auto -> restore_from: snap-0123 | storage[0].restore_from | the ID of an FSx backup
        throughput_mb_s_per_tib: 250 -> restore_from: backup-0123456789abcdef0 | storage[0].restore_from | without a linked bucket
        capacity: {kind: on_demand, count: 1} -> capacity: {kind: on_demand, count: 1}~    mig: [3g.20gb] | pools[1].mig
        capacity: {kind: on_demand, count: 1} -> capacity: {kind: on_demand, count: 1}~    zone: usw2-az1 | pools[1].zone
        strategy: capacity-optimized -> max_price_usd: free | pools[0].capacity[1].max_price_usd | a number
        kind: spot, count: 2, strategy -> kind: spot, count: 2, holds: 4, strategy | pools[0].capacity[1].holds
        handover: {wait -> access: {ssh_from: [0.0.0.0/0]}~handover: {wait | access.ssh_from[0]
        handover: {wait -> access: {bastion: true}~handover: {wait | access.bastion
        handover: {wait -> access: {ssh_keys: [my key]}~handover: {wait | access.ssh_keys[0]
        handover: {wait -> access: {node_policies: [admin]}~handover: {wait | access.node_policies[0]
    """),
    *_rows("aws", """
        name: train -> name train |
        name: train -> name:train |
        where: {cloud: aws, region: us-east-1, zone: use1-az4} -> where: {cloud: aws, region: us-east-1, zone: use1-az4 |
        recipients: [ops@example.com] -> recipients: [ops@example.com |
        driver: "595" -> driver: "595 |
        disk: {size_gib -> - disk: {size_gib |
        tags: {team: research} -> tags: {team: research, team: training} |
        tags: {team: research} -> tags: *shared |
        name: train -> name: !!python/name:os.system train | | has the tag | remove it
        name: train -> !mine name: train | | has the tag '!mine' | remove it
        tags: {team: research} -> tags: !mine {team: research} | | has the tag '!mine' | remove it
        containers: [docker] -> containers: !!set [docker] | | has the tag '!!set' | remove it
        tags: {team: research} -> tags: {team: @research} |
        tags: {team: research} -> ~\ttags: {team: research} |
        tags: {team: research} -> tags: {team: research}~name: again |
    """),
    *_rows("azure", """
        region: eastus -> regin: eastus | where.regin | did you mean region?
        zone: "2"}~tags -> zones: "2"}~tags | where.zones | did you mean zone?
        machine: Standard_ND96isr_H100_v5 -> machin: Standard_ND96isr_H100_v5 | pools[0].machin | did you mean machine?
        machine: Standard_ND96isr_H100_v5~ -> ~ | pools[0].machine | is missing
        kind: on_demand, count: 4 -> knd: on_demand, count: 4 | pools[0].capacity[0] | kind
        kind: on_demand, count: 4 -> kind: Spot, count: 4 | pools[0].capacity[0] | did you mean spot?
        kind: on_demand, count: 4 -> kind: reserve, count: 4 | pools[0].capacity[0] | did you mean reserved?
        kind: on_demand, count: 4 -> kind: reserved, id: our-group, count: 4 | pools[0].capacity[0].kind
        kind: on_demand, count: 4 -> kind: spot, max_price_usd: free, count: 4 | pools[0].capacity[0].max_price_usd | a number
        kind: on_demand, count: 4 -> kind: spot, strategy: cheapest, count: 4 | pools[0].capacity[0].strategy | capacity-optimized
        count: 4} -> count: four} | pools[0].capacity[0].count | a whole number
        count: 4} -> count: "4"} | pools[0].capacity[0].count | without quotes
        count: 4} -> count: -4} | pools[0].capacity[0].count
        count: 4} -> count: 4.5} | pools[0].capacity[0].count | a whole number
        , count: 4} -> } | pools[0].capacity[0].count | is missing
        capacity_gib: 16384 -> capacity_gb: 16384 | storage[0].capacity_gb | did you mean capacity_gib?
        capacity_gib: 16384 -> capacity_gib: 16.4 | storage[0].capacity_gib | a whole number
        capacity_gib: 16384 -> capacity_gib: "16,384" | storage[0].capacity_gib | a whole number
        capacity_gib: 16384 -> capacity_gib: 0 | storage[0].capacity_gib | 1
        , capacity_gib: 16384 -> | storage[0].capacity_gib | is missing
        throughput_mb_s_per_tib: -> throughput: | storage[0].throughput | did you mean throughput_mb_s_per_tib?
        throughput_mb_s_per_tib: 250 -> throughput_mb_s_per_tib: 250 MB/s | storage[0].throughput_mb_s_per_tib | a whole number
        throughput_mb_s_per_tib: 250 -> throughput_mb_s_per_tib: 250, deployment: scratch_2 | storage[0].deployment
        throughput_mb_s_per_tib: 250 -> throughput_mb_s_per_tib: 250, fabric: true | storage[0].fabric
        throughput_mb_s_per_tib: 250 -> throughput_mb_s_per_tib: 250, bucket: our-data | storage[0].bucket
        throughput_mb_s_per_tib: 250 -> throughput_mb_s_per_tib: 250, backup_days: 7 | storage[0].backup_days
        cloud: azure -> cloud: azur | where | did you mean azure?
        cloud: azure -> cloud: microsoft | where | azure
        cloud: azure -> cloud: Azure | where | azure
        region: eastus -> region: eastsu | where.region | did you mean eastus?
        region: eastus -> region: virginia | where.region
        region: eastus -> region: us-central1 | where.region
        machine: Standard_ND96isr_H100_v5 -> machine: Standard_ND96isr_H100_v6 | pools[0].machine | did you mean Standard_ND96isr_H100_v5?
        machine: Standard_ND96isr_H100_v5 -> machine: 8xH100 | pools[0].machine
        machine: Standard_D4s_v5 -> machine: Standard_F16s_v2 | pools[1].machine | did you mean Standard_D16s_v5?
        machine: Standard_D4s_v5 -> machine: Standard_D4ps_v5 | pools[1].machine | did you mean Standard_D4s_v5?
        kind: lustre -> kind: blob | storage[0] | use kind object
        kind: home -> kind: azure_files | storage[1] | home
        kind: home, mount -> kind: netapp, mount | storage[1] | use kind home with service: netapp
        driver: "580" -> driver: 580 | software.driver | quotes
        driver: "580" -> driver: "595" | software.driver | contains branch 580
        driver: "580" -> driver: latest | software.driver
        capacity: {kind: on_demand, count: 1} -> capacity: {kind: on_demand, count: 1}~    mig: [3g.40gb] | pools[1].mig
        bastion: true, -> bastion: true, operators: [me], | access.operators[0]
        bastion: true, -> bastion: true, ssh_from: [0.0.0.0/0], | access.ssh_from[0]
        bastion: true, -> bastion: true, ssh_keys: [my key], | access.ssh_keys[0] | ssh-ed25519
        bastion: true, -> bastion: true, node_policies: ["arn:aws:iam::aws:policy/ReadOnlyAccess"], | access.node_policies | has no effect on Azure
        bastion: true, -> bastion: true, node_roles: [{role: AcrPull, scope: /subscriptions/00000000-0000-4000-8000-000000000001/resourceGroups/shared/providers/Microsoft.ContainerRegistry/registries/images}], | access.node_roles[0].role
        lock_mode: governance, -> lock_mode: governance, all_buckets: true, | audit.all_buckets | has no effect on Azure
        cidr: 10.32.0.0/16 -> machines: [Standard_ND96isr_H100_v5] | network.machines
        region: eastus -> region: east-us | where.region | did you mean eastus?
        region: eastus -> region: East US | where.region | eastus
        region: eastus -> region: us-east-1 | where.region
        zone: "2" -> zone: 2 | where.zone | quotes
        zone: "2" -> zone: "4" | where.zone
        zone: "2"}~tags -> zone: eastus-2}~tags | where.zone
        machine: Standard_ND96isr_H100_v5 -> machine: ND96isr_H100_v5 | pools[0].machine | Standard_ND96isr_H100_v5
        machine: Standard_ND96isr_H100_v5 -> machine: standard_nd96isr_h100_v5 | pools[0].machine | did you mean Standard_ND96isr_H100_v5?
        machine: Standard_ND96isr_H100_v5 -> machine: p5.48xlarge | pools[0].machine
        kind: on_demand -> kind: low_priority | pools[0].capacity[0]
        capacity_gib: 16384 -> capacity_gib: 16TiB | storage[0].capacity_gib
        throughput_mb_s_per_tib: 250 -> throughput_mb_s_per_tib: 1000 | storage[0].throughput_mb_s_per_tib | 500
        kind: lustre -> kind: amlfs | storage[0] | lustre
        zone: "2"}~ -> zone: "9"}~ | where.zone
        evidence_from: [203.0.113.0/24] -> evidence_from: 203.0.113.0/24 | access.evidence_from | a list
        evidence_from: [203.0.113.0/24] -> evidence_from: [office] | access.evidence_from[0]
        evidence_from: [203.0.113.0/24] -> evidence_from: [203.0.113.77/24] | access.evidence_from[0] | has host bits | 203.0.113.0/24 or 203.0.113.77/32
        bastion: true -> bastion: Standard | access.bastion | true
        bastion: true -> bastian: true | access.bastian | did you mean bastion?
        cidr: 10.32.0.0/16 -> cidr: 172.16.0.0/16 | network.cidr
        cidr: 10.32.0.0/16 -> cidr: 10.32.0.0/26 | network.cidr
    """),
    *_rows("gcp", """
        region: us-central1, -> regin: us-central1, | where.regin | did you mean region?
        zone: us-central1-a -> zones: us-central1-a | where.zones | did you mean zone?
        machine: a3-megagpu-8g -> machin: a3-megagpu-8g | pools[0].machin | did you mean machine?
        machine: a3-megagpu-8g~ -> ~ | pools[0].machine | is missing
        kind: spot, count: 4 -> knd: spot, count: 4 | pools[0].capacity[0] | kind
        kind: spot, count: 4 -> kind: Spot, count: 4 | pools[0].capacity[0] | did you mean spot?
        kind: spot, count: 4 -> kind: spot, strategy: lowest-price, count: 4 | pools[0].capacity[0].strategy | has no effect on Google Cloud
        kind: spot, count: 4 -> kind: spot, max_price_usd: free, count: 4 | pools[0].capacity[0].max_price_usd | a number
        kind: spot, count: 4 -> kind: reserved, id: "our reservation", count: 4 | pools[0].capacity[0].id
        kind: spot, count: 4 -> kind: flex, max_run_hours: a day, count: 4 | pools[0].capacity[0].max_run_hours | a whole number
        kind: spot, count: 4 -> kind: flex, count: 4 | pools[0].capacity[0].max_run_hours | is missing
        kind: spot, count: 4 -> kind: flex, max_run_hours: 24, count: 0 | pools[0].capacity[0].count | 1
        count: 4} -> count: four} | pools[0].capacity[0].count | a whole number
        count: 4} -> count: "4"} | pools[0].capacity[0].count | without quotes
        count: 4} -> count: -4} | pools[0].capacity[0].count
        count: 4} -> count: 4.5} | pools[0].capacity[0].count | a whole number
        , count: 4} -> } | pools[0].capacity[0].count | is missing
        capacity_gib: 36000 -> capacity_gb: 36000 | storage[0].capacity_gb | did you mean capacity_gib?
        capacity_gib: 36000 -> capacity_gib: 36.0 | storage[0].capacity_gib | a whole number
        capacity_gib: 36000 -> capacity_gib: "36,000" | storage[0].capacity_gib | a whole number
        capacity_gib: 36000 -> capacity_gib: 0 | storage[0].capacity_gib | 1
        , capacity_gib: 36000 -> | storage[0].capacity_gib | is missing
        throughput_mb_s_per_tib: -> throughput: | storage[0].throughput | did you mean throughput_mb_s_per_tib?
        throughput_mb_s_per_tib: 250 -> throughput_mb_s_per_tib: 250 MB/s | storage[0].throughput_mb_s_per_tib | a whole number
        throughput_mb_s_per_tib: 250 -> throughput_mb_s_per_tib: 250, deployment: scratch_2 | storage[0].deployment
        throughput_mb_s_per_tib: 250 -> throughput_mb_s_per_tib: 250, fabric: true | storage[0].fabric
        throughput_mb_s_per_tib: 250 -> throughput_mb_s_per_tib: 250, backup_days: 7 | storage[0].backup_days
        throughput_mb_s_per_tib: 250 -> throughput_mb_s_per_tib: 250, zone: us-east4-a | storage[0].zone
        cloud: gcp -> cloud: gpc | where | did you mean gcp?
        cloud: gcp -> cloud: google | where | gcp
        cloud: gcp -> cloud: GCP | where | gcp
        region: us-central1, -> region: us-cental1, | where.region | did you mean us-central1?
        region: us-central1, -> region: eastus, | where.region
        machine: a3-megagpu-8g -> machine: p5.48xlarge | pools[0].machine
        machine: a3-megagpu-8g -> machine: 8xH100 | pools[0].machine
        machine: n2-standard-4 -> machine: e2-standard-4 | pools[1].machine | did you mean n2-standard-4?
        machine: n2-standard-4 -> machine: n1-standard-4 | pools[1].machine | did you mean n2-standard-4?
        kind: lustre -> kind: managed_lustre | storage[0] | use kind lustre
        kind: home -> kind: nfs | storage[1] | use kind home
        mount: /home, capacity_gib: 1024 -> mount: /home, capacity_gib: 500 | storage[1].capacity_gib
        driver: "580" -> driver: 580 | software.driver | quotes
        driver: "580" -> driver: "595" | software.driver | contains branch 580
        driver: "580" -> driver: latest | software.driver
        capacity: {kind: on_demand, count: 1} -> capacity: {kind: on_demand, count: 1}~    mig: [3g.40gb] | pools[1].mig
        capacity: {kind: on_demand, count: 1} -> capacity: {kind: on_demand, count: 1}~    zone: us-east4-a | pools[1].zone
        size_gib: 300} -> size_gib: 300, iops: 4000} | pools[0].disk | remove iops
        access: { -> access: {operators: [me], | access.operators[0]
        access: { -> access: {bastion: true, | access.bastion | has no effect on Google Cloud
        access: { -> access: {node_policies: ["arn:aws:iam::aws:policy/ReadOnlyAccess"], | access.node_policies | has no effect on Google Cloud
        access: { -> access: {node_roles: [{role: artifactregistry.reader}], | access.node_roles[0].role
        access: { -> access: {evidence_from: [203.0.113.0/24], | access.evidence_from | has no effect on Google Cloud
        lock_mode: governance, -> lock_mode: governance, all_buckets: true, | audit.all_buckets | has no effect on Google Cloud
        cidr: 10.32.0.0/16 -> machines: [a3-mega] | network.machines[0] | a3-megagpu-8g
        region: us-central1, -> region: us-central-1, | where.region | did you mean us-central1?
        region: us-central1, -> region: us-central1-a, | where.region | us-central1
        region: us-central1, -> region: iowa, | where.region
        zone: us-central1-a -> zone: us-central1-A | where.zone | us-central1-a
        zone: us-central1-a -> zone: a | where.zone
        zone: us-central1-a -> zone: europe-west4-a | where.zone
        machine: a3-megagpu-8g -> machine: a3-mega-8g | pools[0].machine | did you mean a3-megagpu-8g?
        machine: a3-megagpu-8g -> machine: a3-megagpu | pools[0].machine
        machine: a3-megagpu-8g -> machine: nvidia-h100-mega-80gb | pools[0].machine
        kind: spot -> kind: preemptible | pools[0].capacity[0]
        kind: spot -> kind: flex_start | pools[0].capacity[0]
        kind: spot -> kind: flex, max_run_hours: 400 | pools[0].capacity[0].max_run_hours
        kind: spot -> kind: reserved | pools[0].capacity[0]
        kind: spot, -> strategy: cheap, kind: spot, | pools[0].capacity[0].strategy
        capacity_gib: 36000 -> capacity_gib: 36T | storage[0].capacity_gib
        throughput_mb_s_per_tib: 250 -> throughput_mb_s_per_tib: 200 | storage[0].throughput_mb_s_per_tib | 250
        mount: /home -> mount: /scratch | storage[1].mount
        mount: /home -> mount: /usr | storage[1].mount
        kind: home -> kind: filestore | storage[1] | home
        ssh_from: [10.0.0.0/8] -> ssh_from: [0.0.0.0/0] | access.ssh_from[0]
        ssh_from: [10.0.0.0/8] -> ssh_from: [203.0.113.77/24] | access.ssh_from[0] | has host bits | 203.0.113.0/24 or 203.0.113.77/32
        throughput_mb_s_per_tib: 250} -> bucket: "gs://my-data/folder"} | storage[0].bucket | bucket_prefix
        ssh_from: [10.0.0.0/8] -> ssh_from: [10.0.0.0/40] | access.ssh_from[0]
        ssh_from: [10.0.0.0/8] -> ssh_from: 10.0.0.0/8 | access.ssh_from | a list
        registry: us-central1-docker.pkg.dev/my-project/gpudirect -> registry: "" | software.registry
        registry: us-central1-docker.pkg.dev/my-project/gpudirect -> registry: docker://gpudirect | software.registry
        zone: us-central1-a -> project: My Project, zone: us-central1-a | where.project
        zone: us-central1-a -> project_id: my-project, zone: us-central1-a | where.project_id | did you mean project?
    """),
    *_rows("aws", """
        capacity: {kind: on_demand, count: 1} -> capacity: {kind: flex, count: 1} | pools[1].capacity[0].kind | AWS does not offer | block, on_demand
        kind: spot, count: 2, strategy: capacity-optimized -> kind: flex, id: a | pools[0].capacity[1].kind | AWS does not offer
    """, in_python=False),
    *_rows("azure", """
        kind: on_demand, count: 4 -> kind: block, count: 4 | pools[0].capacity[0].kind | Azure does not offer | on_demand, reserved, spot
        kind: home, mount: /home, capacity_gib: 1024 -> kind: home, mount: /home, capacity_gib: 50 | storage[1].capacity_gib | 100 to 102400
    """, in_python=False),
    *_rows("gcp", """
        kind: spot, count: 4 -> kind: block, count: 4 | pools[0].capacity[0].kind | Google Cloud does not offer | flex, on_demand
    """, in_python=False),
]  # fmt: skip
