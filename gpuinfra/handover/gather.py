"""Collects membership, evidence and identities from the ports, for one verdict after the other.

Large fleets determine the design. A poll lists the folders of single nodes and never the whole prefix, which contains the evidence of all earlier boots
and of all earlier nodes. Documents are read at the same time, judged on all cores, and not kept; only their results are.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

from gpuinfra.base.safe_text import one_line
from gpuinfra.handover.documents import Documents
from gpuinfra.handover.evidence import NotEvidence, evidence_of, proof_of
from gpuinfra.handover.examine import Content, JudgeNode, examine
from gpuinfra.handover.judge import FleetVerdict, NodeVerdict, Submission, is_outdated, judge_fleet
from gpuinfra.handover.listing import MOST_KEPT, FolderList
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
    StoredProof,
    folder_of,
)
from gpuinfra.handover.workers import Caller, NotEvaluated, shared
from gpuinfra.node.fabric_relay import NodeReport
from gpuinfra.node.outcome import shortened

CONSOLE_LINES = 15
NOT_SIGNED = "no document in the node's folder is signed by the node yet"
LISTED_PER_POLL = 20_000
"""Maximum number of objects of one folder to list in one poll. The next poll continues the list, so that a folder with many objects delays only its node."""
SEARCH_S, BYTES_PER_POLL = 20.0, 64 * 1024 * 1024
"""Maximum time and number of bytes in one poll for the search for the evidence that one instance signed. The next poll continues."""
MEMBERS_S = 3.0
"""Time for which the members of the groups are not read again while a fabric test needs frequent polls, because the clouds limit these requests."""
READS_AT_ONCE = 10
"""Nodes whose evidence is read at the same time. Also the default size of the connection pools of botocore and requests."""
LISTED_AGAIN, LISTED_AGAIN_SHARE = 20, 20
"""A poll lists the folders of at most this number of settled nodes, or of one node in this number of nodes, whichever is larger. In a large fleet, the
folder of each settled node is listed in every 20th poll, which is every five minutes."""


T = TypeVar("T")


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
        workers: Caller | None = None,
    ) -> None:
        """`workers` evaluates the documents, by default in processes."""
        self._ports = ports
        self._pools = pools
        self._judge_node = judge_node
        self._now = now
        self._documents = Documents(ports.store)
        self._workers = workers or shared()
        self._trusted = dict(trusted or {})
        """Key of evidence -> its confirmed signer."""
        self._invalid: dict[tuple[tuple[str, str], tuple[str, str]], tuple[str, bool]] = {}
        """Document and proof -> why the proof is not valid for the document, and whether the reason is final. They are not read again."""
        self._undecided: dict[str, set[tuple[tuple[str, str], tuple[str, str]]]] = {}
        """Instance -> pairs in `_invalid` that the next search examines again."""
        self._listings: dict[str, FolderList] = {}
        self._buried: set[tuple[str, bool]] = set()
        """Instances whose newest evidence, or whose newest reports (True), are not theirs, so that all of this kind in their folder are examined."""
        self._clock = time.monotonic
        self._members: list[Member] = []
        self._read_at = 0.0
        self._here: dict[str, PoolExpected] = {}
        """The instances whose evidence counts, with their pools."""
        self._refs: dict[str, tuple[EvidenceRef, ...]] = {}
        """The evidence of each instance, newest first. The instance that was listed last is at the end."""
        self.in_test: frozenset[str] = frozenset()
        """Instances that a fabric test asks. Each poll lists their folders, also if they are settled."""
        self._listed: set[str] = set()
        """The instances that were listed since the last verdict, so that a repeated poll continues after an error."""
        self._settled: set[str] = set()
        self._contents: dict[tuple[str, str], Content] = {}
        self._submissions: dict[tuple[str, bool], Submission] = {}
        """The evidence, or the report (True), that counted in the last poll, of each instance that had any."""
        self.leaving = False
        """True if a node is terminating. The node occupies its reservation until it is gone, so missing capacity is not final."""

    @property
    def groups(self) -> list[GroupExpected]:
        """All groups in all pools."""
        return [group for pool in self._pools for group in pool.groups]

    def poll(self, names: NodeNames | None = None) -> FleetVerdict:
        """Read membership and evidence once, and judge. After `PortUnavailable`, the next call continues with the remaining nodes."""
        if not self.in_test or self._clock() - self._read_at >= MEMBERS_S:
            self._members, self._read_at = self._ports.membership.members(self.groups), self._clock()
        members = self._members
        self.leaving = any(m.leaving for m in members)
        self._here = self._expected(members)
        for gone in self._refs.keys() - self._here.keys():
            del self._refs[gone]
        for gone in self._listings.keys() - self._here.keys():
            del self._listings[gone]
        with ThreadPoolExecutor(max_workers=READS_AT_ONCE) as threads:
            for _ in threads.map(self._list, self._to_list()):
                pass
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
        settled = [one for one in self._refs if one in self._settled and one not in self.in_test]
        again = settled[: max(LISTED_AGAIN, len(settled) // LISTED_AGAIN_SHARE)]
        unsettled = [one for one in self._refs if one not in self._settled or one in self.in_test]
        new = [one for one in silent if self._folder(one) in folders]
        return [one for one in (*new, *unsettled, *again) if one not in self._listed]

    def _folder(self, instance_id: str) -> str:
        return folder_of(self._here[instance_id].evidence_owner, instance_id)

    def _list(self, instance_id: str) -> None:
        """List the folder of an instance up to the limit of one poll, or continue the list of the last poll."""
        listing = self._listings.get(instance_id)
        if listing is None or listing.complete:
            listed = self._ports.store.list(self._folder(instance_id))
            owner = self._here[instance_id].evidence_owner
            everything = {is_report for is_report in (False, True) if (instance_id, is_report) in self._buried}
            listing = self._listings[instance_id] = FolderList(listed, instance_id, owner, everything=everything)
        if listing.advance(LISTED_PER_POLL):
            self._refs.pop(instance_id, None)
            if evidence := listing.refs():
                self._refs[instance_id] = evidence
        self._listed.add(instance_id)

    def _forget(self, verdict: FleetVerdict) -> None:
        """Drop what the next poll does not require."""
        self._listed.clear()
        self._settled = {node.instance_id for node in verdict.nodes if node.settled}
        places = {ref.place for refs in self._refs.values() for ref in refs}
        places |= {ref.place for listing in self._listings.values() for ref in listing.refs(is_report=True)}
        self._invalid = {pair: why for pair, why in self._invalid.items() if pair[0] in places}
        self._contents = {place: content for place, content in self._contents.items() if place in places}
        self._submissions = {one: kept for one, kept in self._submissions.items() if one[0] in self._refs}

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
        if not expected:
            return
        listing = self._listings[node.instance_id]
        refs = listing.refs()
        if False in listing.shortened:
            refs = tuple(
                one
                for one in self._ports.store.list(self._folder(node.instance_id))
                if one.instance_id == node.instance_id and not one.is_report
            )
        same_boot = sorted((one for one in refs if one.boot_id == node.boot_id), key=lambda one: one.seq, reverse=True)
        begun = self._clock()
        for ref in same_boot:
            if (expected == node.evidence_sha256 and ref.key != node.evidence_key) or not (
                ref.proofs or ref.key in self._trusted
            ):
                continue
            if self._clock() - begun > SEARCH_S:
                return
            data = self._documents.read(ref)
            if hashlib.sha256(data).hexdigest() != expected:
                continue
            yield ref, data
            try:
                expected = evidence_of(data).previous
            except NotEvidence:
                return

    def evaluate(self, function: Callable[..., T], *arguments: object) -> T:
        """Call a module-level function with a document. Raises `NotEvaluated`, for example if it takes too long."""
        return self._workers.call(function, *arguments)

    def reports(self, nodes: Sequence[NodeVerdict]) -> dict[str, NodeReport]:
        """Return the newest report to the fabric test that each of these nodes signed in its current boot. Raises `PortUnavailable`."""
        boots = {node.instance_id: node.boot_id for node in nodes if node.instance_id in self._listings}

        def newest(instance_id: str) -> NodeReport | None:
            listing = self._listings[instance_id]
            reports = listing.refs(is_report=True) if listing.complete else ()
            refs = tuple(ref for ref in reports if ref.boot_id == boots[instance_id])
            submission = self._newest(instance_id, refs) if refs else None
            role = self._here[instance_id].node_role
            if submission is None or submission.identity is None or (role and submission.identity.role != role):
                return None
            return submission.content.report if submission.content else None

        with ThreadPoolExecutor(max_workers=READS_AT_ONCE) as threads:
            reports = dict(zip(boots, threads.map(newest, boots), strict=True))
        return {instance_id: report for instance_id, report in reports.items() if report is not None}

    def _submitted(self, instance_id: str) -> Submission:
        """Return the newest evidence that the node signed, with its content."""
        return self._newest(instance_id, self._refs[instance_id])

    def _newest(self, instance_id: str, refs: tuple[EvidenceRef, ...]) -> Submission:
        """Return the newest document that the node signed, with its content. The documents are of one kind, newest first.

        The order is that of the store's times. Within a boot, the highest number counts, because a replica of the store can have other times."""
        begun, read, examined, kind = self._clock(), 0, False, (instance_id, refs[0].is_report)
        accepted: Submission | None = None
        problems: list[Submission] = []
        unsigned = 0
        for ref in refs:
            if accepted is not None and (ref.boot_id != accepted.ref.boot_id or ref.seq < accepted.ref.seq):
                continue
            if self._is_unsigned(ref):
                unsigned += 1
                if not problems and ref.proofs:
                    problem, final = self._invalid[ref.place, ref.proofs[0].place]
                    problems.append(Submission(ref=ref, sha256="", identity_problem=problem, identity_final=final))
                continue
            if examined and (self._clock() - begun > SEARCH_S or read > BYTES_PER_POLL):
                # The next poll continues with the objects that are not examined yet.
                return self._unfinished(kind, refs[0])
            submission, size = self._signed(ref)
            read, examined = read + size, True
            if submission.content is None:
                problems.append(submission)
                unsigned += 1
            else:
                accepted = submission
        for pair in self._undecided.pop(instance_id, ()):
            self._invalid.pop(pair, None)
        if accepted is None and refs[0].is_report in self._listings[instance_id].shortened:
            self._buried.add(kind)
            return self._unfinished(kind, refs[0])
        if accepted is None:
            return replace(self._rejected(instance_id, problems, refs[0]), unsigned=unsigned)
        if accepted.ref in refs[:MOST_KEPT]:
            self._buried.discard(kind)
        self._submissions[kind] = marked = replace(accepted, unsigned=unsigned)
        return marked

    def _is_unsigned(self, ref: EvidenceRef) -> bool:
        """Return True if evidence has no proof that can be valid for it, according to the list and to earlier examinations."""
        return ref.key not in self._trusted and all((ref.place, one.place) in self._invalid for one in ref.proofs)

    def _unfinished(self, kind: tuple[str, bool], first: EvidenceRef) -> Submission:
        """Return the document that counted before, while the search for a newer one continues. Until there is any, the node waits."""
        if kind in self._submissions:
            return self._submissions[kind]
        problem = "the search for evidence that the node signed continues, because its folder has many objects that it did not sign"
        return Submission(ref=first, sha256="", identity_problem=problem)

    def _rejected(self, instance_id: str, problems: Sequence[Submission], first: EvidenceRef) -> Submission:
        """Return why the node has no signed evidence. The reason is final only in a folder to which no other node can write."""
        newest = problems[0] if problems else Submission(ref=first, sha256="")
        if self._here[instance_id].evidence_owner or not newest.identity_final:
            return newest
        return replace(newest, identity_problem=NOT_SIGNED, identity_final=False)

    def _signed(self, ref: EvidenceRef) -> tuple[Submission, int]:
        """Return a piece of evidence with its content if the node signed it, otherwise with the reason, and the number of bytes that were read.

        The proofs are verified first. The document is read only if a proof names the node, and parsed only if the proof is about this document.
        """
        shared = not self._here[ref.instance_id].evidence_owner
        if (trusted := self._trusted.get(ref.key)) is not None:
            content = self._contents.get(ref.place)
            if content is not None and content.sha256 == trusted.evidence_sha256:
                return Submission(ref=ref, sha256=content.sha256, identity=trusted, content=content), 0
            submission, size = self._proven(ref, trusted, shared=shared)
            if submission.content is not None:
                return submission, size
        problem, final, size = "", False, 0
        for proof in ref.proofs:
            if (ref.place, proof.place) in self._invalid:
                continue
            identity, reason, refused, length = self._identity(ref, proof)
            size += length
            if identity is not None and identity.instance_id != ref.instance_id:
                reason = (
                    f"the node's evidence was signed by {shortened(identity.instance_id, 64)}, not by {ref.instance_id}"
                )
                identity, refused = None, True
            if identity is not None:
                submission, length = self._proven(ref, identity, shared=shared)
                size += length
                if submission.content is not None:
                    self._trusted[ref.key] = identity
                    return submission, size
                reason, refused = submission.identity_problem, submission.identity_final
            self._invalid[ref.place, proof.place] = reason, refused
            if not problem or refused >= final:
                problem, final = reason, refused
        return Submission(ref=ref, sha256="", identity_problem=problem, identity_final=final), size

    def _proven(self, ref: EvidenceRef, identity: Identity, *, shared: bool) -> tuple[Submission, int]:
        """Return a document with its content, given who signed which hash. The content is None if this is not the hash of the document."""
        data = self._documents.read(ref)
        sha256 = hashlib.sha256(data).hexdigest()
        if sha256 != identity.evidence_sha256:
            problem = "the node's identity proof signs different evidence"
            return Submission(ref=ref, sha256=sha256, identity_problem=problem, identity_final=True), len(data)
        if ref.place not in self._contents:
            pool = self._here[ref.instance_id]
            try:
                judged = self._workers.call(examine, data, ref, pool.expectation, self._judge_node)
            except NotEvaluated as error:
                judged = Content(sha256=sha256, unreadable=f"the node's evidence {ref.key} cannot be judged: {error}")
            self._contents[ref.place] = judged
        content = self._contents[ref.place]
        if content.misplaced and shared:
            # Another node copied a document that this node signed.
            return Submission(ref=ref, sha256=sha256, identity_problem=content.unreadable, identity_final=True), len(
                data
            )
        return Submission(ref=ref, sha256=sha256, identity=identity, content=content), len(data)

    def _identity(self, ref: EvidenceRef, proof: StoredProof) -> tuple[Identity | None, str, bool, int]:
        """Return the confirmed identity of a proof, or the reason and whether it is final, and the size of the proof."""
        raw = self._ports.store.proof(proof)
        if raw is None:
            return None, "the node's evidence has no identity proof yet", False, 0
        try:
            return self._ports.identity.verify(proof_of(raw)), "", False, len(raw)
        except IdentityExpired as error:
            return None, f"{one_line(error)}; the node signs a new proof every ten minutes", False, len(raw)
        except IdentityUndecided as error:
            self._undecided.setdefault(ref.instance_id, set()).add((ref.place, proof.place))
            return None, one_line(error), False, len(raw)
        except IdentityRefused as error:
            return None, one_line(error), True, len(raw)
        except ValueError as error:
            return None, f"the node's identity proof cannot be read: {one_line(error)}", True, len(raw)

    def problems(self, missing: Mapping[str, int]) -> list[GroupProblem]:
        """Return what prevents these groups from launching missing nodes or replacing outdated nodes."""
        short = {group.group: group for group in self.groups if group.name in missing}
        problems_of_groups = self._ports.membership.problems(list(short.values())) if short else []
        return [replace(one, name=short[one.group].name) if one.group in short else one for one in problems_of_groups]

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
