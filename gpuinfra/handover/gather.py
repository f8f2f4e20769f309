"""Collects membership, evidence and identities from the ports, for one verdict after the other.

Large fleets determine the design. A poll lists the folders of single nodes and never the whole prefix, which contains the evidence of all earlier boots
and of all earlier nodes. Documents are read at the same time, judged on all cores, and not kept; only their results are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime

from gpuinfra.base.json_text import parsed
from gpuinfra.handover.documents import Documents
from gpuinfra.handover.examine import Content, JudgeNode, examine
from gpuinfra.handover.judge import FleetVerdict, NodeVerdict, Submission, is_outdated, judge_fleet, ranked
from gpuinfra.handover.names import NodeNames
from gpuinfra.handover.ports import (
    EvidenceRef,
    GroupExpected,
    GroupProblem,
    Identity,
    IdentityExpired,
    IdentityRefused,
    IdentityUndecided,
    Member,
    PoolExpected,
    Ports,
    PortUnavailable,
    folder_of,
)
from gpuinfra.handover.workers import Workers, workers_for

CONSOLE_LINES = 15
MAX_EVIDENCE_SEARCHED = 20
"""Maximum number of pieces of evidence to check per instance when searching for evidence that the instance itself signed."""
READS_AT_ONCE = 10
"""Nodes whose evidence is read at the same time. Also the default size of the connection pools of botocore and requests."""
LISTED_AGAIN, LISTED_AGAIN_SHARE = 20, 20
"""A poll lists the folders of at most this number of settled nodes, or of one node in this number of nodes, whichever is larger. In a large fleet, the
folder of each settled node is listed in every 20th poll, which is every five minutes."""


class Gatherer:
    """Polls the ports for one fleet and caches the results."""

    def __init__(
        self,
        ports: Ports,
        pools: Sequence[PoolExpected],
        *,
        judge_node: JudgeNode,
        trusted: Mapping[str, Identity] | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._ports = ports
        self._pools = pools
        self._judge_node = judge_node
        self._now = now
        self._documents = Documents(ports.store)
        self._workers = Workers()
        self._trusted = dict(trusted or {})
        self._refused: dict[tuple[str, str], str] = {}
        self._here: dict[str, PoolExpected] = {}
        """The instances whose evidence counts, with their pools."""
        self._refs: dict[str, tuple[EvidenceRef, ...]] = {}
        """The newest evidence of each instance. The instance that was listed last is at the end."""
        self._listed: set[str] = set()
        """The instances that were listed since the last verdict, so that a repeated poll continues after an error."""
        self._settled: set[str] = set()
        self._sha256: dict[tuple[str, str], str] = {}
        self._contents: dict[tuple[str, str], Content] = {}
        self._final: dict[str, tuple[tuple[EvidenceRef, ...], Submission]] = {}
        """Submissions that only newer evidence can change, with the evidence that was listed."""
        self.leaving = False
        """True if a node is terminating. The node occupies its reservation until it is gone, so missing capacity is not final."""

    @property
    def groups(self) -> list[GroupExpected]:
        """All groups in all pools."""
        return [group for pool in self._pools for group in pool.groups]

    def poll(self, names: NodeNames | None = None) -> FleetVerdict:
        """Read membership and evidence once, and judge. After `PortUnavailable`, the next call continues with the remaining nodes."""
        members = self._ports.membership.members(self.groups)
        self.leaving = any(m.leaving for m in members)
        self._here = self._expected(members)
        for gone in self._refs.keys() - self._here.keys():
            del self._refs[gone]
        with ThreadPoolExecutor(max_workers=READS_AT_ONCE) as threads:
            for _ in threads.map(self._list, self._to_list()):
                pass
            unread = sum(1 for refs in self._refs.values() if refs[0].place not in self._contents)
            with workers_for(unread, READS_AT_ONCE) as self._workers:
                submissions = dict(zip(self._refs, threads.map(self._submitted, self._refs), strict=True))
        verdict = judge_fleet(self._pools, members, submissions, now=self._now(), names=names)
        self._forget(verdict)
        return verdict

    def _expected(self, members: Sequence[Member]) -> dict[str, PoolExpected]:
        """Return the instances whose evidence counts, with their pools."""
        groups = {group.group: (pool, group.template_version) for pool in self._pools for group in pool.groups}
        present = [m for m in members if m.group in groups and not m.leaving]
        return {m.instance_id: groups[m.group][0] for m in present if not is_outdated(m, groups[m.group][1])}

    def _to_list(self) -> list[str]:
        """Return the instances to list: those with a folder that are not settled, and some of the others."""
        silent = [one for one in self._here if one not in self._refs]
        folders = set(self._ports.store.folders()) if silent else set()
        settled = [one for one in self._refs if one in self._settled]
        again = settled[: max(LISTED_AGAIN, len(settled) // LISTED_AGAIN_SHARE)]
        unsettled = [one for one in self._refs if one not in self._settled]
        new = [one for one in silent if self._folder(one) in folders]
        return [one for one in (*new, *unsettled, *again) if one not in self._listed]

    def _folder(self, instance_id: str) -> str:
        return folder_of(self._here[instance_id].evidence_owner, instance_id)

    def _list(self, instance_id: str) -> None:
        """List the folder of an instance. Only the newest evidence is kept."""
        refs = tuple(self._ranked(instance_id)[:MAX_EVIDENCE_SEARCHED])
        self._refs.pop(instance_id, None)
        if refs:
            self._refs[instance_id] = refs
        self._listed.add(instance_id)

    def _ranked(self, instance_id: str) -> list[EvidenceRef]:
        owner = self._here[instance_id].evidence_owner
        listed = self._ports.store.list(self._folder(instance_id))
        return ranked(ref for ref in listed if ref.instance_id == instance_id and ref.owner == owner)

    def _forget(self, verdict: FleetVerdict) -> None:
        """Drop what the next poll does not require."""
        self._listed.clear()
        self._settled = {node.instance_id for node in verdict.nodes if node.settled}
        places = {ref.place for refs in self._refs.values() for ref in refs}
        self._sha256 = {place: sha256 for place, sha256 in self._sha256.items() if place in places}
        self._contents = {place: content for place, content in self._contents.items() if place in places}
        self._final = {one: final for one, final in self._final.items() if one in self._refs}

    def data_of(self, node: NodeVerdict) -> bytes | None:
        """Return the evidence on which the verdict for a node is based, or None. Raises `PortUnavailable`."""
        for ref in self._refs.get(node.instance_id, ()):
            if ref.key == node.evidence_key:
                data = self._documents.read(ref)
                return data if hashlib.sha256(data).hexdigest() == node.evidence_sha256 else None
        return None

    def history(self, node: NodeVerdict) -> Iterator[tuple[EvidenceRef, bytes]]:
        """Yield the evidence on which the verdict for a node is based, then earlier evidence of the same boot, newest first.

        Each document contains the hash of the previous one, so the series stops before evidence that the node did not write.
        """
        expected = node.evidence_sha256
        refs: Sequence[EvidenceRef] = self._refs.get(node.instance_id, ()) if expected else ()
        if len(refs) == MAX_EVIDENCE_SEARCHED:
            refs = self._ranked(node.instance_id)
        for ref in refs:
            if ref.boot_id != node.boot_id or (expected == node.evidence_sha256 and ref.key != node.evidence_key):
                continue
            data = self._documents.read(ref)
            if hashlib.sha256(data).hexdigest() != expected:
                return
            yield ref, data
            try:
                expected = str(parsed(data).get("previous"))
            except (ValueError, AttributeError):
                return

    def _submitted(self, instance_id: str) -> Submission:
        """Return the newest evidence with its content. A submission with a confirmed identity is kept until there is newer evidence."""
        refs = self._refs[instance_id]
        listed, kept = self._final.get(instance_id, ((), None))
        if kept is not None and listed == refs:
            return kept
        found = self._accepted(instance_id, refs)
        found = replace(found, content=self._content(self._here[instance_id], found))
        if found.content is not None and found.identity is not None and not _signed_by_another(found, instance_id):
            self._final[instance_id] = refs, found
        return found

    def _accepted(self, instance_id: str, refs: Sequence[EvidenceRef]) -> Submission:
        """Return the newest evidence. In a store without per-writer folders, only evidence that the instance itself signed counts.

        In such a store, a compromised node can write newer evidence under another node's name but cannot sign it.
        """
        first = self._submission(refs[0])
        if self._here[instance_id].evidence_owner or not _signed_by_another(first, instance_id):
            return first
        for ref in refs[1:]:
            other = self._submission(ref)
            if other.identity is not None and not _signed_by_another(other, instance_id):
                return other
        return first

    def _submission(self, ref: EvidenceRef) -> Submission:
        """Return a piece of evidence with its signer, but without its content."""
        if ref.place not in self._sha256:
            self._sha256[ref.place] = hashlib.sha256(self._documents.read(ref)).hexdigest()
        sha256 = self._sha256[ref.place]
        identity, problem, final = self._identity(ref, sha256)
        return Submission(ref=ref, sha256=sha256, identity=identity, identity_problem=problem, identity_final=final)

    def _content(self, pool: PoolExpected, submission: Submission) -> Content | None:
        """Return what a document proves, or None if its hash is not the hash whose signer was verified."""
        ref = submission.ref
        if ref.place not in self._contents:
            data = self._documents.read(ref)
            self._contents[ref.place] = self._workers.call(examine, data, ref, pool.expectation, self._judge_node)
        if self._contents[ref.place].sha256 == submission.sha256:
            return self._contents[ref.place]
        del self._contents[ref.place], self._sha256[ref.place]
        return None

    def _identity(self, ref: EvidenceRef, sha256: str) -> tuple[Identity | None, str, bool]:
        """Return the confirmed identity for this evidence. Confirmed hashes are cached, so each hash requires only one request."""
        if sha256 in self._trusted:
            return self._trusted[sha256], "", True
        raw = self._ports.store.proof(ref)
        if raw is None:
            return None, "the node's evidence has no identity proof yet", False
        if (sha256, hashlib.sha256(raw).hexdigest()) in self._refused:
            return None, self._refused[sha256, hashlib.sha256(raw).hexdigest()], True
        try:
            proof = parsed(raw)
            if not isinstance(proof, dict):
                raise IdentityRefused("the node's identity proof is not a JSON object")
            identity = self._ports.identity.verify(proof)
        except IdentityExpired as error:
            return None, f"{error}; the node signs a new proof every ten minutes", False
        except IdentityUndecided as error:
            return None, str(error), False
        except (IdentityRefused, ValueError, RecursionError) as error:
            reason = str(error) if isinstance(error, IdentityRefused) else "the node's identity proof is not JSON"
            self._refused[sha256, hashlib.sha256(raw).hexdigest()] = reason
            return None, reason, True
        self._trusted[sha256] = identity
        return identity, "", True

    def problems(self, missing: Mapping[str, int]) -> list[GroupProblem]:
        """Return what prevents these groups from launching missing nodes or replacing outdated nodes."""
        short = {group.group: group for group in self.groups if group.name in missing}
        found = self._ports.membership.problems(list(short.values())) if short else []
        return [replace(one, name=short[one.group].name) if one.group in short else one for one in found]

    def proceed(self, groups: Sequence[GroupExpected]) -> list[str]:
        """Continue the replacement in these groups. Return the names of the groups that continue."""
        return self._ports.membership.proceed(groups) if groups else []

    def replace(self, node: NodeVerdict) -> None:
        """Request that the group of a node replaces the node. Raises `PortUnavailable`."""
        (group,) = (one for one in self.groups if one.name == node.group)
        self._ports.membership.replace(group, node.instance_id)

    def console(self, instance_id: str) -> list[str]:
        """Return the end of a console log. If the log is unavailable, return no lines, so that the actual finding is still reported."""
        try:
            return self._ports.console.tail(instance_id, CONSOLE_LINES)
        except PortUnavailable:
            return []


def _signed_by_another(submission: Submission, instance_id: str) -> bool:
    """Return True if the cloud confirms that this instance did not sign this evidence."""
    identity = submission.identity
    if identity is None:
        return submission.identity_final
    return identity.instance_id != instance_id or identity.evidence_sha256 != submission.sha256
