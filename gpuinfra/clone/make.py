"""Clones a declaration to a second region.

The clone is a list of edits, each with its reason. What a stack file cannot copy is listed with the command that provides it.
Facts about a cloud come from its profile and its module `second_region`. Nothing here calls a cloud.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from gpuinfra.catalog.records import CapacityKind, MachineType
from gpuinfra.clone import machines as find
from gpuinfra.clone import names
from gpuinfra.clone.alternatives import alternatives
from gpuinfra.clone.draft import HIDDEN, Draft, apply, put, put_given, route_of
from gpuinfra.clone.model import ORIGIN, Change, ClonedFile, Request, Result, Transfer
from gpuinfra.clone.network import range_for
from gpuinfra.clone.request import facts_of, request_findings
from gpuinfra.clone.write import reasons_of, render
from gpuinfra.clouds import profile_of
from gpuinfra.clouds.images import WORDS
from gpuinfra.clouds.machines import machines_of, nearest_value
from gpuinfra.clouds.second_region import Manual, Quota
from gpuinfra.cost import Cost, price
from gpuinfra.errors import SpecError
from gpuinfra.findings import Finding, Level, error, warn
from gpuinfra.plan.model import Plan
from gpuinfra.planning import make_plan
from gpuinfra.rules import check, check_stack
from gpuinfra.spec.capacity import Block, Flex, Reserved
from gpuinfra.spec.document import Route
from gpuinfra.spec.image import CustomImage
from gpuinfra.spec.load import LoadedStack, parse_spec, stack_name
from gpuinfra.spec.messages import listed, nearest
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.pool import Pool
from gpuinfra.spec.shown import looks_secret, shown
from gpuinfra.spec.storage import Lustre

RULE = "clone"
FLEX_HOURS = 168
STACK_SECRETS = ("encryptionsalt", "encryptedkey", "secretsprovider")
"""Keys of a stack file that belong to the secrets provider of the stack."""


def clone(stack: LoadedStack, text: str, request: Request, today: date, output: Path | None = None) -> Result:
    """Clone a stack. `text` is the content of its file, and `output` the file of the clone.

    The result has findings of level error and no files if the stack, the request, or the clone is invalid.
    Raises `UsageError` if the path in a `--set` value is invalid or does not fit the clone.
    """
    base = Result(
        stack=stack.name,
        path=stack.path,
        source_region=stack.spec.where.region,
        source_cloud=stack.spec.cloud,
        request=request,
    )
    found = [one for one in check_stack(stack, today) if one.level is Level.ERROR]
    asked = [replace(one, rule=RULE) for one in request_findings(stack.spec, request)]
    found = found or [one for one in asked if one.level is Level.ERROR]
    if found:
        return replace(base, findings=tuple(found))
    return _Cloner(stack, text, request, today, output).result(base)


class _Cloner:
    """The clone of one stack. Each method handles one part of the declaration."""

    def __init__(self, stack: LoadedStack, text: str, request: Request, today: date, output: Path | None) -> None:
        assert stack.document is not None
        self.stack, self.text, self.request, self.today = stack, text, request, today
        self.spec = stack.spec
        self.source, self.target = stack.spec.where.region, request.region
        self.cloud = request.cloud or stack.spec.cloud
        self.across = self.cloud != stack.spec.cloud
        self.here, self.there = profile_of(stack.spec.cloud), profile_of(self.cloud)
        self.facts, self.own_facts = facts_of(self.cloud), facts_of(stack.spec.cloud)
        value: Any = stack.document.value
        for part in stack.route:
            value = value[part]
        self.draft = Draft(value)
        self.values = [(route_of(path, value), given) for path, given in request.values]
        self.origin = names.origin_of(stack.config.get(ORIGIN))
        self.name = names.stack_in(stack.name, self.source, self.target, self.origin)
        self.output = output or names.file_of(stack.path, self.name)
        if output is not None:
            self.name = stack_name(output)
        self.manual: list[Manual] = []
        self.findings: list[Finding] = []
        self.config: list[Change] = []
        self.zones: dict[str, str] = {}
        self.found: dict[str, MachineType] = {}
        self.project = getattr(stack.spec.where, "project", None)

    # The result

    def result(self, base: Result) -> Result:
        cloned: ClusterSpec | None = None
        for part in (
            self._where,
            self._pools,
            self._zone,
            self._capacity,
            self._images,
            self._storage,
            self._network,
            self._software,
            self._policies,
            self._recovery,
            self._uses,
            self._settings,
            self._given,
        ):
            part()
            if self._failed():
                return self._refused(base)
        cloned = self._parsed()
        if cloned is None or self._failed():
            return self._refused(base)
        self._left_over(cloned)
        self.findings += [one for one in request_findings(self.spec, self.request) if one.level is not Level.ERROR]
        plan = make_plan(cloned, self.today)
        after = price(plan, self.today, duration_hours=cloned.duration_hours)
        before = price(make_plan(self.spec, self.today), self.today, duration_hours=self.spec.duration_hours)
        self._quotas(cloned)
        files = self._files(cloned)
        if len(files) > 1:
            self.findings += [
                one
                for file in files
                for one in check(parse_spec(file.declaration), self.today)
                if one.level is Level.ERROR
            ]
            if self._failed():
                return self._refused(base)
        standing = self._standing(cloned, files)
        changes = (*self.config, *self.draft.changes)
        return replace(
            base,
            changes=changes,
            manual=tuple(self.manual),
            findings=self._named(self.findings),
            files=files,
            before=before,
            after=after,
            estimate=self._estimate(plan, after),
            standing=price(standing, self.today) if standing else None,
            standing_estimate=self._estimate(standing, price(standing, self.today)) if standing else None,
            plan=plan,
            transfers=tuple(self._transfers()),
            next=tuple(self._next(files)),
        )

    def _named(self, findings: Iterable[Finding]) -> tuple[Finding, ...]:
        order = {Level.ERROR: 0, Level.WARN: 1, Level.INFO: 2}
        found = [replace(one, rule=one.rule or RULE) for one in findings]
        return tuple(sorted(found, key=lambda one: order[one.level]))

    def _failed(self) -> bool:
        return any(one.level is Level.ERROR for one in self.findings)

    def _refused(self, base: Result) -> Result:
        """Return the errors, with alternatives if the region cannot provide the nodes."""
        errors = [one for one in self.findings if one.level is Level.ERROR]
        place = any(one.path in ("--zone", "--machine") or one.path.startswith("pools[") for one in errors)
        return replace(base, findings=self._named(errors), alternatives=self._alternatives() if place else ())

    def _alternatives(self) -> Any:
        known = machines_of(self.spec)
        pools = [(pool, known[pool.machine]) for pool in self.spec.pools]
        if not pools:
            return ()
        pool, machine = max(pools, key=lambda pair: pair[0].nodes * pair[1].gpus)
        fabric = machine.fabric is not None and pool.fabric != "none"
        return alternatives(machine, pool.nodes, self.spec.cloud, self.source, self.cloud, self.target, fabric=fabric)

    # The declaration

    def _where(self) -> None:
        if self.across:
            was = self.spec.where
            self.draft.set(("where", "cloud"), self.cloud, f"the second region is on {self.there.title}")
            if getattr(was, "project", None):
                self.draft.set(("where", "project"), None, f"{self.there.title} has no projects")
        self.draft.set(("where", "region"), self.target, f"second region instead of {self.source}")

    def _pools(self) -> None:
        """Choose the machine type and the number of nodes of each pool."""
        known, offered = machines_of(self.spec), dict(self.there.machines)
        if not self.across:
            offered = known
        for index, pool in enumerate(self.spec.pools):
            old = known[pool.machine]
            asked = self.request.machine.get(pool.name) or self.request.machine.get("*")
            new = self._machine(index, pool, old, asked, offered)
            if new is None:
                continue
            self.found[pool.name] = new
            self.draft.set(("pools", index, "machine"), new.name, self._why(old, new, asked))
        for index, name in enumerate(() if self.across else self.spec.network.machines):
            old = known[name]
            new = self._machine(index, None, old, None, offered)
            if new:
                self.draft.set(("network", "machines", index), new.name, self._why(old, new, None))
        if self.across and self.spec.machines:
            self.draft.set(("machines",), None, f"these machine types are of {self.here.title}")
        if self.across and self.spec.network.machines:
            self.draft.set(("network", "machines"), None, f"the machine types are of {self.here.title}")

    def _machine(
        self, index: int, pool: Pool | None, old: MachineType, asked: str | None, offered: dict[str, MachineType]
    ) -> MachineType | None:
        if asked is not None:
            if asked in offered:
                return offered[asked]
            near = nearest(asked, list(offered))
            hint = (
                f"did you mean {near}?" if near else f"`gpuinfra catalog --cloud {self.cloud}` lists the machine types"
            )
            what = f"is {shown(asked)}, which is not in the {self.there.title} catalog"
            self.findings.append(error("--machine", what, hint))
            return None
        if not self.across and find.is_listed(old, self.target):
            return old
        nodes = pool.nodes if pool else 1
        fabric = old.fabric is not None and (pool is None or pool.fabric != "none")
        equal = find.equals(old, nodes, self.there, self.target, fabric=fabric)
        if equal:
            return equal[0]
        path = f"pools[{index}].machine" if pool else f"network.machines[{index}]"
        what = (
            f"is {old.name}, which the catalog does not list in {self.target}, and no machine type there can replace it"
        )
        if self.across:
            what = f"is {old.name}, and no machine type that the {self.there.title} catalog lists in {self.target} can replace it"
        hint = "use another region, or name the machine type with --machine if you know that the region offers it"
        self.findings.append(error(path, what, hint))
        return None

    def _why(self, old: MachineType, new: MachineType, asked: str | None) -> str:
        if asked:
            return "set with --machine"
        gpus = f"{new.gpus} x {new.gpu.key}" if new.gpu else f"{new.vcpus} vCPUs"
        kind = "the same GPU" if find.same_gpu(old, new) else "the nearest GPU with at least the same memory"
        where = self.there.title if self.across else f"{self.target}"
        was = "is a machine type of another cloud" if self.across else "is not listed there"
        return (
            f"{old.name} {was}; {new.name} ({gpus}) has {kind} in {where}"
            if old.gpu
            else f"{old.name} {was}; {new.name} ({gpus}) is the smallest that replaces it"
        )

    def _zone(self) -> None:
        """Map each zone of the stack to a zone of the second region."""
        spec = self.spec
        users: dict[str, list[MachineType]] = {}
        for pool in spec.pools:
            zone = pool.zone or spec.where.zone
            if zone:
                users.setdefault(zone, []).append(self.found[pool.name])
        known = machines_of(spec)
        for name in spec.network.machines:
            if spec.where.zone and not self.across:
                new = self.draft.get(("network", "machines", spec.network.machines.index(name)))
                users.setdefault(spec.where.zone, []).append(known.get(new, known[name]))
        wanted = self.request.zone
        if wanted:
            offered = find.zones_in(self.found.values(), self.there, self.target)
            if offered and wanted not in offered:
                what = f"is {wanted}, in which the catalog does not list {listed(sorted({one.name for one in self.found.values()}))}"
                self.findings.append(error("--zone", what, f"listed zones: {listed(offered)}"))
            self.draft.set(("where", "zone"), wanted, "set with --zone")
            if spec.where.zone:
                self.zones[spec.where.zone] = wanted
        declared = [spec.where.zone] if spec.where.zone else []
        every: list[str] = [*declared, *users, *self._storage_zones()]
        for zone in dict.fromkeys(every):
            if zone in self.zones:
                continue
            chosen, why = find.zone_for(
                zone, users.get(zone) or list(self.found.values()), self.there, self.target, self.zones
            )
            if (
                chosen is None
                and not self.found
                and self.there.region_of_zone(self.there.first_zone(self.target), self.target)
            ):
                chosen, why = self._numbered(zone), f"zone of {self.target}"
            if chosen:
                self.zones[zone] = chosen
            if zone == spec.where.zone:
                self.draft.set(("where", "zone"), chosen, why)
        for index, pool in enumerate(spec.pools):
            if pool.zone:
                self.draft.set(("pools", index, "zone"), self.zones.get(pool.zone), f"{pool.zone} is in {self.source}")
        for index, entry in enumerate(spec.storage):
            if isinstance(entry, Lustre) and entry.zone:
                self.draft.set(
                    ("storage", index, "zone"), self.zones.get(entry.zone), f"{entry.zone} is in {self.source}"
                )

    def _numbered(self, zone: str) -> str:
        """Return the zone with the same number, for a stack without machine types, or the first zone."""
        first = self.there.first_zone(self.target)
        same = first[:-1] + zone[-1]
        return same if self.there.region_of_zone(same, self.target) == self.target else first

    def _storage_zones(self) -> list[str]:
        return [entry.zone for entry in self.spec.storage if isinstance(entry, Lustre) and entry.zone]

    def _capacity(self) -> None:
        known = machines_of(self.spec)
        for index, pool in enumerate(self.spec.pools):
            old, new = known[pool.machine], self.found[pool.name]
            counts, why = self._counts(pool, old, new)
            raw = self.draft.get(("pools", index, "capacity"))
            route: Route = ("pools", index, "capacity")
            entries = raw if isinstance(raw, list) else [raw]
            made: list[Any] = []
            reasons: list[str] = []
            for number, (entry, count) in enumerate(zip(pool.capacity, counts, strict=True)):
                here = (*route, number) if isinstance(raw, list) else route
                value, reason = self._entry(
                    here, f"pools[{index}].capacity[{number}]", pool, entry, entries[number], new, count
                )
                if value is None:
                    return
                made.append({**value, "count": count})
                reasons.append("; ".join(one for one in (reason, why if count != entry.count else "") if one))
            if 0 in counts:
                left = [one for one in made if one["count"]]
                self.draft.set(route, left, f"{why}; {'; '.join(dict.fromkeys(one for one in reasons if one))}")
            else:
                for number, (value, reason) in enumerate(zip(made, reasons, strict=True)):
                    self.draft.set((*route, number) if isinstance(raw, list) else route, value, reason)
            if pool.quota_vcpus is not None:
                why = f"it is the quota in {self.source}; request the quota of {self.target}"
                self.draft.set(("pools", index, "quota_vcpus"), None, why)
        floor, nodes = (
            self.spec.handover.floor,
            sum(
                entry["count"]
                for pool in self.draft.get(("pools",)) or []
                for entry in (pool["capacity"] if isinstance(pool["capacity"], list) else [pool["capacity"]])
            ),
        )
        if floor is not None and floor > nodes > 0:
            self.draft.set(("handover", "floor"), nodes, f"the clone has {nodes} nodes")

    def _counts(self, pool: Pool, old: MachineType, new: MachineType) -> tuple[list[int], str]:
        """Return the nodes of each entry: as asked, or so that the number of GPUs stays the same."""
        asked = self.request.count.get(pool.name) or self.request.count.get("*")
        counts = [entry.count for entry in pool.capacity]
        if asked:
            return _share(counts, asked), "set with --count"
        if old.gpus == new.gpus or not new.gpus or not old.gpus:
            return counts, ""
        total = math.ceil(pool.nodes * old.gpus / new.gpus)
        return _share(counts, total), f"{total} nodes have the {pool.nodes * old.gpus} GPUs of the stack"

    def _entry(
        self, route: Route, path: str, pool: Pool, entry: Any, raw: dict[str, Any], machine: MachineType, count: int
    ) -> tuple[dict[str, Any] | None, str]:
        """Return the capacity entry of the clone and the reason for its change."""
        given = [part for part, _ in self.values if part[: len(route)] == route or part == route[: len(part)]]
        named = any(part[len(route) :] in ((), ("id",), ("group_arn",)) for part in given)
        kinds = find.free_kinds(machine, self.there)
        bound = isinstance(entry, (Reserved, Block))
        if bound and named:
            kept = {key: value for key, value in raw.items() if key not in ("zone", "placement_group", "holds")}
            return kept, "zone, placement group and size belong to the reservation of the stack"
        if not bound and CapacityKind(entry.kind) in kinds:
            keep = {
                key: value for key, value in raw.items() if not (self.across and key in ("strategy", "max_price_usd"))
            }
            return keep, f"{self.there.title} has no such settings" if keep != raw else ""
        kind = CapacityKind(entry.kind)
        if bound:
            wanted = kind if kind in machine.capacity and kind in self.there.capacity_kinds else CapacityKind.RESERVED
            zone = self.draft.get(("where", "zone"))
            each = find.hourly(machine, self.there, self.target, wanted)
            usd = f"{each * count:,.2f} USD an hour, used or not" if each else "an unknown price"
            bills = "; the command creates the reservation, and billing starts at once, even if no node runs"
            if wanted is CapacityKind.BLOCK:
                bills = "; the command lists offers and buys nothing"
            if wanted in machine.capacity and wanted in self.there.capacity_kinds:
                self.manual.append(
                    Manual(
                        path=path,
                        what=f"{kind.value} capacity: {count} x {machine.name} in {self.target}",
                        why=f"a reservation belongs to one zone and cannot be moved; buy {wanted.value} capacity for {usd}, and name it with --set '{path}={{kind: {wanted.value}, ...}}'{bills}",
                        command=self.facts.purchase(wanted, machine, count, self.target, zone),
                    )
                )
        if not kinds:
            allowed = listed(sorted(one.value for one in machine.capacity & self.there.capacity_kinds))
            belongs = f"which belongs to {self.source}, and" if bound else "but"
            what = f"is {kind.value}, {belongs} {machine.name} is sold only as {allowed or 'capacity that gpuinfra does not support'}"
            hint = f"buy it in {self.target} and name it: --set '{path}={{kind: {allowed}, id: ID, count: {count}}}'"
            if allowed == "block":
                hint = f"buy a block in {self.target} and name it with --set '{path}={{kind: block, id: ID, count: {count}, starts_at: TIME, ends_at: TIME}}'"
            self.findings.append(error(path, what, hint))
            return None, ""
        chosen = kinds[0]
        value: dict[str, Any] = {"kind": chosen.value, "count": count}
        if chosen is CapacityKind.FLEX:
            hours = entry.max_run_hours if isinstance(entry, Flex) else FLEX_HOURS
            value["max_run_hours"] = hours
        why = (
            f"{kind.value} capacity belongs to {self.source}"
            if bound
            else f"{machine.name} is not sold as {kind.value}"
        )
        return (
            value,
            f"{why}; {chosen.value} until you reserve capacity in {self.target}"
            if bound
            else f"{why}; {chosen.value} instead",
        )

    def _images(self) -> None:
        declared: list[tuple[str, Route, object]] = [
            (f"pools[{index}].image", ("pools", index, "image"), pool.image)
            for index, pool in enumerate(self.spec.pools)
        ]
        declared.append(("software.image", ("software", "image"), self.spec.software.image))
        for path, route, image in declared:
            if self._is_given(route) or self._is_given((*route, "ref")):
                continue
            if self.across and isinstance(image, str) and image not in WORDS:
                what = f"is {image}, the release date of an image of {self.here.title}"
                self.findings.append(error(path, what, f"add --set {path}=default, or a date of {self.there.title}"))
            if not isinstance(image, CustomImage):
                continue
            if self.across:
                what = f"is an image of {self.here.title}, which does not start on {self.there.title}"
                self.findings.append(
                    error(
                        path,
                        what,
                        f"build it on {self.there.title} and name it: --set {path}.ref=IMAGE, or --set {path}=default",
                    )
                )
                continue
            copied = self.facts.image(image.ref, self.source, self.target)
            if copied:
                why, command = copied
                what = f"is in {self.source}: {why}"
                self.findings.append(
                    error(
                        f"{path}.ref",
                        what,
                        f"run `{command}`, then add --set {path}.ref=IMAGE, or --set {path}=default",
                    )
                )

    def _storage(self) -> None:
        for index, entry in enumerate(self.spec.storage):
            path = f"storage[{index}]"
            if not isinstance(entry, Lustre):
                continue
            if self.across:
                for name in sorted(self.own_facts.storage_fields - self.facts.storage_fields):
                    self.draft.set(("storage", index, name), None, f"{self.there.title} has no such setting")
                tier = entry.throughput_mb_s_per_tib
                if tier and tier not in self.facts.tiers:
                    near = nearest_value(self.facts.tiers, tier)
                    why = f"{self.there.title} offers {listed([str(one) for one in self.facts.tiers])} MB/s per TiB"
                    self.draft.set(("storage", index, "throughput_mb_s_per_tib"), near, why)
            if entry.bucket is None:
                if "site" in self.spec.made_layers:
                    what = (
                        f"has no bucket, so its data has no replica, and the clone starts with an empty {entry.mount}"
                    )
                    self.findings.append(
                        warn(path, what, "link a bucket to the file system of the stack (bucket: auto)")
                    )
                continue
            if "site" not in self.spec.made_layers and not self.spec.use.site:
                continue
            if entry.bucket != "auto" and not self._is_given(("storage", index, "bucket")):
                why = f"the bucket of the stack is in {self.source}; the clone creates its own, which is empty until the data is replicated or copied"
                self.draft.set(("storage", index, "bucket"), "auto", why)
                if entry.bucket_prefix:
                    self.draft.set(("storage", index, "bucket_prefix"), None, "the new bucket has no folders")
            self._data(index, entry)

    def _data(self, index: int, entry: Lustre) -> None:
        """List the data of a file system, which a stack file does not contain, and warn if the clone starts without it."""
        path, bucket = f"storage[{index}]", "BUCKET" if entry.bucket == "auto" else entry.bucket or ""
        new = self._final(("storage", index, "bucket")) == "auto"
        if new and "site" in self.spec.made_layers:
            what = f"is auto, a bucket that the clone creates, so {entry.mount} starts without the data of the stack"
            hint = f"name a bucket in {self.target} that has the data with --set {path}.bucket=BUCKET, or copy the data before you use the clone"
            self.findings.append(warn(f"{path}.bucket", what, hint))
        early = (
            f"; in mode cold, the bucket of the clone does not exist before the failover: create one in {self.target} now and name it with --set {path}.bucket=BUCKET"
            if new and self.request.mode == "cold"
            else ""
        )
        recovery, feature = self.spec.recovery, self.own_facts.replication.feature
        command = read = self.own_facts.bucket(bucket, self.source, self.target)
        why = f"a stack file creates the bucket but copies no data; replicate the bucket of the stack: {feature}"
        if self.across:
            why = f"object storage is not replicated between clouds; copy the data with a tool of your own{early}"
            command = f"rclone sync SOURCE:{bucket} TARGET:BUCKET"
        elif recovery is not None and recovery.region == self.target:
            named = f"; name the replica in this stack output with --set {path}.bucket=BUCKET to start from its data"
            why = f"`recovery` of the stack replicates the bucket{named if new else ''}"
            command = f"pulumi stack output recovery --stack {self.stack.name}"
        elif recovery is not None:
            why = f"`recovery` of the stack replicates the bucket to {recovery.region} only; copy the data to {self.target}{early}"
        elif self._can_recover() and entry.bucket == "auto":
            why = f"{why}{early}; `recovery: {{region: {self.target}, ...}}` in the declaration of the stack sets this up (docs/declaring.md)"
        else:
            why = f"{why}{early}"
        if command == read and self.own_facts.replication.caution:
            why = f"{why}; {self.own_facts.replication.caution}"
        self.manual.append(Manual(path=path, what=f"data of {entry.mount}", why=why, command=command))

    def _can_recover(self) -> bool:
        """Whether the rules accept a recovery section with the second region in the stack."""
        return self.here.replication is not None and {"foundation", "site"} <= set(self.spec.made_layers)

    def _final(self, route: Route) -> object:
        """Return the value at a path of the clone after the values of `--set`."""
        draft = Draft(self.draft.value)
        self._apply(draft)
        return draft.get(route)

    def _apply(self, draft: Draft) -> None:
        for (text, _), (one, value) in zip(self.request.values, self.values, strict=True):
            put_given(draft, text, one, value)

    def _network(self) -> None:
        network, made = self.spec.network, "site" in self.spec.made_layers
        if network.existing and not self._is_given(("network", "existing")):
            self.draft.set(
                ("network", "existing"),
                None,
                f"{network.existing.id.rpartition('/')[2]} is a network of {self.source}; the clone creates its own network",
            )
            self.manual.append(
                Manual(
                    path="network.existing",
                    what=f"existing network in {self.target}",
                    why="to use a network that exists there, name it with --set 'network.existing={id: ID, subnets: {ZONE_OR_REGION: SUBNET}}'",
                    command=self.facts.network(self.target),
                )
            )
            if not self.request.peers:
                what = "is not in the declaration of an existing network, so the clone cannot avoid it"
                self.findings.append(warn("network.cidr", what, "name the ranges of the existing network with --peer"))
        if self._is_given(("network", "cidr")) or self._is_given(("network", "existing")):
            return
        declared = self.draft.get(("network", "cidr"))
        if not made and declared is None:
            return
        if self.request.cidr:
            self.draft.set(("network", "cidr"), self.request.cidr, "set with --cidr")
            return
        chosen = range_for(network.cidr, self.source, self.target, self.there.regions, self.request.peers)
        if chosen is None:
            what = f"is {network.cidr}, and every private range of this size overlaps --peer"
            self.findings.append(error("network.cidr", what, "name a free range with --cidr"))
            return
        self.draft.set(
            ("network", "cidr"),
            chosen,
            f"does not overlap {network.cidr}, so that both networks can be peered; other stacks are not read, so name the ranges of their networks with --peer",
        )

    def _software(self) -> None:
        software = self.spec.software
        if self.across:
            for name in ("registry", "kernel"):
                if getattr(software, name):
                    self.draft.set(("software", name), None, f"it is specific to {self.here.title}")
            return
        moved = software.registry and self.facts.registry(software.registry, self.source, self.target)
        if moved and not self._is_given(("software", "registry")):
            new, command = moved
            self.draft.set(("software", "registry"), new, f"the registry is in {self.source}")
            why = "a registry is in one region; copy the images before the failover"
            self.manual.append(
                Manual(path="software.registry", what=f"container images in {new}", why=why, command=command)
            )

    def _policies(self) -> None:
        spec = self.spec
        if spec.audit.bucket:
            self.draft.set(("audit", "bucket"), None, f"the bucket is in {self.source}; the clone creates its own")
        if self.across:
            if spec.audit.all_buckets and not self.there.selects_buckets:
                self.draft.set(("audit", "all_buckets"), None, f"{self.there.title} has no such setting")
            for name in type(spec.access).model_fields:
                if getattr(spec.access, name) and (name not in self.there.access_fields or name == "operators"):
                    self.draft.set(("access", name), None, f"it is specific to {self.here.title}")
        for route, tags in (
            (("tags",), spec.tags),
            *((("pools", i, "tags"), pool.tags) for i, pool in enumerate(spec.pools)),
        ):
            for key, value in tags.items():
                if looks_secret(key) or looks_secret(value):
                    why = "it looks like a secret, and the clone contains no secrets in clear"
                    self.draft.set((*route, key), None, why, secret=True)

    def _recovery(self) -> None:
        """Reverse the recovery section: the first region is the second region of the clone, with the mode of the clone.

        A section for a bucket that the clone does not create is removed, because it would be refused.
        """
        recovery = self.spec.recovery
        if recovery is None:
            return
        mode, buckets = (
            self.request.mode,
            [
                str(name)
                for index, entry in enumerate(self.spec.storage)
                if isinstance(entry, Lustre)
                and (name := self._final(("storage", index, "bucket"))) not in (None, "auto")
            ],
        )
        if recovery.region == self.target and recovery.mode != mode and not self.across:
            what = f"is {mode}, but recovery.mode of the stack is {recovery.mode}, from which its recovery time is calculated"
            self.findings.append(
                warn("--mode", what, f"use --mode {recovery.mode}, or change recovery.mode of the stack")
            )
        if self.across:
            self.draft.set(
                ("recovery",), None, f"data is not replicated between {self.there.title} and {self.here.title}"
            )
            return
        if buckets and not self._is_given(("recovery",)):
            why = f"the clone does not create the bucket {listed(buckets)} and cannot replicate it; set up its replication to {self.source} before you fail back"
            self.draft.set(("recovery",), None, why)
            return
        if not self._is_given(("recovery", "region")):
            why = f"{self.source} is the second region of the clone, so that you can fail back"
            self.draft.set(("recovery", "region"), self.source, why)
        if self._is_given(("recovery", "mode")) or recovery.mode == mode:
            return
        self.draft.set(("recovery", "mode"), mode, "mode of the clone")
        if self._is_given(("recovery", "site_minutes")):
            return
        if mode != "cold":
            why = f"with mode {mode}, the site exists before the failover"
            self.draft.set(("recovery", "site_minutes"), None, why)
        else:
            what = f"is missing, but the clone has mode cold, and the stack has mode {recovery.mode}"
            hint = f"add --set recovery.site_minutes=MINUTES, the measured time to create the site, or --mode {recovery.mode}"
            self.findings.append(error("recovery.site_minutes", what, hint))

    def _uses(self) -> None:
        for layer in ("foundation", "site"):
            reference = getattr(self.spec.use, layer)
            if reference and not self._is_given(("use", layer)):
                new = names.reference_in(reference, layer, self.source, self.target, self.origin)
                why = f"the {layer} of {self.target}; `gpuinfra clone {reference.rpartition('/')[2]} --region {self.target}` writes its stack file"
                self.draft.set(("use", layer), new, why)

    def _settings(self) -> None:
        """Edit the settings outside the declaration. Settings with secrets or with names of the region are left out."""
        if not self.stack.route:
            return
        for key, value in self.stack.config.items():
            route: Route = ("config", key)
            after, why = self._setting(key, value)
            if after != value:
                self.config.append(Change(route=route, before=_hidden(value), after=after, reason=why))
        if self.across:
            key = self.facts.region_settings[0]
            self.config.append(
                Change(route=("config", key), before=None, after=self.target, reason="region of the clone")
            )
        if self.origin is None or self.origin.region != self.target:
            before = self.stack.config.get(ORIGIN)
            why = "stack of which this is the clone, so that a clone in its region gets the original names"
            after = names.record_of(self.stack.name, self.source, self._references())
            self.config.append(Change(route=("config", ORIGIN), before=before, after=after, reason=why))

    def _references(self) -> dict[str, str]:
        use = self.spec.use
        return {layer: one for layer, one in (("foundation", use.foundation), ("site", use.site)) if one}

    def _setting(self, key: str, value: object) -> tuple[object, str]:
        if key == ORIGIN:
            return (
                (None, "this is the original region again")
                if self.origin and self.origin.region == self.target
                else (value, "")
            )
        if _is_secret(value):
            self._secret(key, "is encrypted with the key of the stack, which another stack cannot decrypt", secret=True)
            return None, "a secret of the stack"
        if key in self.own_facts.region_settings and not self.across:
            return self.target, f"second region instead of {self.source}"
        if key in self.own_facts.zone_settings and not self.across:
            return self.zones.get(str(value)) or self.draft.get(("where", "zone")), f"zone of {self.target}"
        if self.across and key.partition(":")[0] in {one.partition(":")[0] for one in self.own_facts.region_settings}:
            return None, f"it is a setting of {self.here.title}"
        if any(looks_secret(one) for one in _texts(value)):
            self._secret(key, "looks like a secret in clear", secret=True)
            return None, "it looks like a secret, and the clone contains no secrets in clear"
        if any(self.source in one for one in _texts(value)):
            self._secret(key, f"names {self.source}", secret=False)
            return None, f"it names {self.source}"
        return value, ""

    def _secret(self, key: str, why: str, *, secret: bool) -> None:
        option = " --secret" if secret else ""
        self.manual.append(
            Manual(
                path=f"config.{key}",
                what=f"setting {key}",
                why=f"it {why}",
                command=f"pulumi config set {key}{option} --stack {self.name}",
            )
        )

    def _given(self) -> None:
        """Apply the values of `--set` last, so that they have priority."""
        self._apply(self.draft)

    def _is_given(self, route: Route) -> bool:
        """Whether `--set` names a value, a value in it, or a value that contains it."""
        return any(one[: len(route)] == route or one == route[: len(one)] for one, _ in self.values)

    def _parsed(self) -> ClusterSpec | None:
        """Parse and check the clone. Findings of level error end the clone."""
        try:
            cloned = parse_spec(self.draft.value)
        except SpecError as problem:
            self.findings += problem.findings
            return None
        where = cloned.where
        if (where.cloud, where.region) != (self.cloud, self.target):
            self.findings.append(
                error("--set where", "changes the cloud or the region of the clone", "use --cloud and --region")
            )
            return None
        config = dict(self.stack.config)
        apply({"config": config}, self.config)
        checked = LoadedStack(name=self.name, path=self.output, spec=cloned, config=config)
        self.findings += check_stack(checked, self.today)
        bound = {name for pool in self.spec.pools for entry in pool.capacity for _, name in _reservations(entry)}
        for i, pool in enumerate(cloned.pools):
            for j, entry in enumerate(pool.capacity):
                for field, name in _reservations(entry):
                    if name in bound and not self.across:
                        what = f"is the reservation of the stack in {self.source}"
                        path = f"pools[{i}].capacity[{j}].{field}"
                        self.findings.append(error(path, what, f"name a reservation in {self.target}"))
        return cloned

    def _left_over(self, cloned: ClusterSpec) -> None:
        """Warn about values that still name the region that can fail."""
        for route, text in _leaves(self.draft.value):
            if self.source in text and route[0] not in ("where", "use", "name", "recovery"):
                path = Change(route=route, before=None, after=None, reason="").path
                what = f"contains {self.source}, the region that can fail"
                self.findings.append(warn(path, what, f"replace it with --set {path}=VALUE if it refers to the region"))

    def _quotas(self, cloned: ClusterSpec) -> None:
        """List the quotas that the clone needs. Machine types of one family share a quota."""
        known = machines_of(cloned)
        needed: dict[str, tuple[Quota, int, list[str]]] = {}
        for pool in cloned.pools:
            for entry in pool.capacity:
                quota = self.facts.quota(known[pool.machine], CapacityKind(entry.kind))
                if quota is None:
                    continue
                _, total, nodes = needed.get(quota.name, (quota, 0, []))
                user = f"{entry.count} x {pool.machine} as {entry.kind}"
                needed[quota.name] = (quota, total + entry.count * quota.per_node, [*nodes, user])
        for quota, total, nodes in needed.values():
            name = quota.name or "a quota whose code is not in the catalog"
            self.manual.append(
                Manual(
                    path="quota",
                    what=f"{name} in {self.target}",
                    why=f"each region has its own quota; {listed(nodes)} need {total} {quota.unit}",
                    command=self.facts.request(quota, total, self.target, getattr(cloned.where, "project", None)),
                )
            )

    # Files and prices

    def _document(
        self, declaration: dict[str, Any], config: Iterable[Change]
    ) -> tuple[Any, list[tuple[Route, object]]]:
        """Return the document with a declaration, and the edits of the settings."""
        assert self.stack.document is not None
        value: Any = copy.deepcopy(self.stack.document.value)
        edits: list[tuple[Route, object]] = [(one.route, one.after) for one in config]
        if self.stack.route and isinstance(value, dict):
            for key in STACK_SECRETS:
                if key in value:
                    edits.append(((key,), None))
        holder: Any = value
        for part in self.stack.route[:-1]:
            holder = holder[part]
        if self.stack.route:
            holder[self.stack.route[-1]] = copy.deepcopy(declaration)
        else:
            value = copy.deepcopy(declaration)
        for route, after in edits:
            put(value, route, copy.deepcopy(after))
        return value, edits

    def _files(self, cloned: ClusterSpec) -> tuple[ClonedFile, ...]:
        assert self.stack.document is not None
        if self.stack.route and isinstance(self.stack.document.value, dict):
            for key in STACK_SECRETS:
                if key in self.stack.document.value:
                    why = "it belongs to the secrets provider of the stack; the clone gets its own, which must not live in either region alone"
                    self.manual.append(
                        Manual(
                            path=key,
                            what="secrets provider of the clone",
                            why=why,
                            command=f"pulumi stack init {self.name} --secrets-provider=PROVIDER",
                        )
                    )
                    break
        splits = self.request.mode == "pilot-light" and len(cloned.made_layers) > 1 and "cluster" in cloned.made_layers
        if not splits:
            return (self._file(self.name, self.output, self.draft.changes, "stack", self.config),)
        base, first = names.base_of(self.name), names.base_of(self.stack.name)
        reference = f"organization/{self.request.project}/{base}"
        layers = [layer for layer in cloned.made_layers if layer != "cluster"]
        why = "mode pilot-light deploys these layers before the failover, without nodes"
        standing = Draft(self.draft.value)
        standing.set(("layers",), layers, why)
        standing.set(("pools",), None, "the nodes are in the other stack of the clone")
        standing.set(("handover",), None, "the nodes are in the other stack of the clone")
        if self._site_needs_machines(cloned):
            wanted = sorted({pool.machine for pool in cloned.pools} | set(cloned.network.machines))
            standing.set(
                ("network", "machines"),
                wanted,
                "the site creates the networks for the interfaces of these machine types",
            )
        plan = make_plan(cloned, self.today)
        after = price(plan, self.today)
        whole = self._estimate(plan, after) or after
        if plan.budget and plan.budget.derived and whole.nodes_priced:
            why = "the price of the whole clone plus 10 percent, because this stack has no nodes from which the limit can be derived"
            if whole is not after:
                why = f"{why}; at the prices of {self.source}, because some prices of {self.target} are unknown"
            limit = max(int(plan.budget.limit_usd_per_month), math.ceil(whole.usd_per_month * 1.1 / 100) * 100)
            standing.set(("budget", "limit_usd_per_month"), limit, why)
        nodes = Draft(self.draft.value)
        nodes.set(("layers",), None, "the other layers are in the other stack of the clone")
        for layer in layers:
            nodes.set(("use", layer), reference, f"the {layer} that is deployed before the failover")
        for name in ("budget", "audit", "recovery"):
            if "foundation" in layers:
                nodes.set((name,), None, "it is in the foundation")
        if "site" in layers:
            nodes.set(("network", "machines"), None, "the site creates the networks")
        return (
            self._file(
                base,
                names.file_of(self.output, base),
                [*self.draft.changes, *standing.changes],
                "base",
                self._recorded(first, self._references()),
            ),
            self._file(
                self.name,
                self.output,
                [*self.draft.changes, *nodes.changes],
                "nodes",
                self._recorded(
                    self.stack.name,
                    {**self._references(), **dict.fromkeys(layers, f"organization/{self.request.project}/{first}")},
                ),
            ),
        )

    def _recorded(self, stack: str, references: dict[str, str]) -> list[Change]:
        """Return the changes of the settings with another record of the original stack."""
        record = names.record_of(stack, self.source, references)
        return [
            replace(one, after=record) if one.route == ("config", ORIGIN) and one.after is not None else one
            for one in self.config
        ]

    def _site_needs_machines(self, cloned: ClusterSpec) -> bool:
        """Whether the site of this cloud creates networks for the interfaces of its machine types."""
        if "site" not in cloned.made_layers:
            return False
        plan = make_plan(cloned, self.today)
        return bool(plan.network and plan.network.extra)

    def _file(
        self, stack: str, path: Path, changes: Iterable[Change], role: str, config: Iterable[Change]
    ) -> ClonedFile:
        changes, config = list(changes), list(config)
        value: Any = self.stack.document.value if self.stack.document else None
        for part in self.stack.route:
            value = value[part]
        declaration = copy.deepcopy(value)
        apply(declaration, changes)
        document, edits = self._document(declaration, config)
        edits += [((*self.stack.route, *one.route), one.after) for one in changes]
        header = [
            f"second region of the stack {self.stack.name} in {self.source}, mode {self.request.mode}, written by `gpuinfra clone`",
            "the lines that start with these words give the reason of a change; the next clone of this file drops them",
        ]
        reasons = [*reasons_of(config, ()), *reasons_of(changes, self.stack.route)]
        same = path.parent.resolve() == self.stack.path.parent.resolve()
        text = render(self.text, document, edits, reasons, header, same_folder=same)
        return ClonedFile(stack=stack, path=path, text=text, declaration=declaration, role=role)

    def _estimate(self, plan: Plan, after: Cost) -> Cost | None:
        """Return the price of the clone at the prices of the first region, if a price of the second region is unknown."""
        if after.complete or self.across:
            return None
        return price(replace(plan, region=self.source), self.today)

    def _standing(self, cloned: ClusterSpec, files: tuple[ClonedFile, ...]) -> Plan | None:
        """Return the plan of what is deployed before the failover, or None if nothing of this stack is deployed."""
        if self.request.mode == "cold" or (
            self.request.mode == "pilot-light" and len(files) == 1 and "cluster" in cloned.made_layers
        ):
            return None
        return make_plan(parse_spec(files[0].declaration), self.today)

    def _transfers(self) -> Iterator[Transfer]:
        cost = self.own_facts.egress(self.source) if self.across else self.own_facts.transfer(self.source, self.target)
        for entry in self.spec.storage:
            if isinstance(entry, Lustre) and entry.bucket:
                what = f"first copy of {entry.mount}, if the file system is full"
                yield Transfer(
                    what=what,
                    gib=self.here.lustre(entry).billed,
                    usd_per_gb=cost.usd_per_gb,
                    read=cost.read,
                    source=cost.source,
                    certain=cost.certain,
                )

    def _next(self, files: tuple[ClonedFile, ...]) -> Iterator[str]:
        for one in files:
            yield f"gpuinfra plan {one.path}"
        yield f"choose a state backend and a secrets provider that do not depend on {self.source}, which can fail"
        for one in files:
            yield f"pulumi stack init {one.stack} --secrets-provider=PROVIDER"
        deploy = [one.stack for one in files]
        if self.request.mode == "cold":
            yield f"after a failure of {self.source}: pulumi up --stack {deploy[-1]}"
        elif self.request.mode == "hot":
            yield f"now: pulumi up --stack {deploy[-1]}"
        elif len(deploy) > 1:
            yield f"now: pulumi up --stack {deploy[0]}"
            yield f"after a failure of {self.source}: pulumi up --stack {deploy[1]}"
        elif "cluster" in self.spec.made_layers:
            yield f"now: deploy the clones of {listed([one for one in (self.spec.use.foundation, self.spec.use.site) if one])}"
            yield f"after a failure of {self.source}: pulumi up --stack {deploy[0]}"
        else:
            yield f"now: pulumi up --stack {deploy[0]}"


def _reservations(entry: object) -> Iterator[tuple[str, str]]:
    """Yield the fields of a capacity entry that name reservations, with their values."""
    if isinstance(entry, (Reserved, Block)):
        for field in ("id", "group_arn"):
            if name := getattr(entry, field, None):
                yield field, name


def _share(counts: list[int], total: int) -> list[int]:
    """Divide a number of nodes among capacity entries in their proportions. The first entries get the rest."""
    whole = sum(counts)
    shares = [count * total // whole for count in counts]
    rest = total - sum(shares)
    order = sorted(range(len(counts)), key=lambda index: (-(counts[index] * total % whole), index))
    for index in order[:rest]:
        shares[index] += 1
    return shares


def _is_secret(value: object) -> bool:
    if isinstance(value, dict):
        return set(value) == {"secure"} or any(map(_is_secret, value.values()))
    return isinstance(value, list) and any(map(_is_secret, value))


def _hidden(value: object) -> object:
    """Return a setting for the list of changes, without secrets."""
    if _is_secret(value) or any(looks_secret(one) for one in _texts(value)):
        return HIDDEN
    return value


def _texts(value: object) -> Iterator[str]:
    yield from (text for _, text in _leaves(value))


def _leaves(value: object, route: Route = ()) -> Iterator[tuple[Route, str]]:
    if isinstance(value, str):
        yield route, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, (*route, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _leaves(item, (*route, index))
