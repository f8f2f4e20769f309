"""A published evaluator of AWS policies: npkt (MIT), which simulates organization policies.

npkt matches actions, resources and conditions, and decides between allows and denials. It takes the resource and the values of condition keys
from CloudTrail events, so this module gives it those of a request instead. Its patterns of resources have no `?`; `*` replaces each group of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from npkt.engine import condition_evaluator
from npkt.engine.scp_engine import SCPEngine
from npkt.models.cloudtrail import CloudTrailEvent
from npkt.models.report import EvaluationContext
from npkt.parsers.scp_parser import parse_policy

from gpuinfra_rehearsal.cloud.core.interfaces import AccessRequest


class Evaluator:
    """The decisions of npkt about requests under policies."""

    def __init__(self, documents: Iterable[Mapping[str, Any]]) -> None:
        self._engine = SCPEngine([parse_policy(json.loads(re.sub(r"\?+", "*", json.dumps(one)))) for one in documents])

    def allows(self, request: AccessRequest) -> bool:
        """Whether a statement allows the request and none denies it."""
        return self.decide(request)[0]

    def decide(self, request: AccessRequest) -> tuple[bool, str]:
        """The decision, and the statement or the reason."""
        service, _, call = request.action.partition(":")
        event = CloudTrailEvent(
            event_time=datetime.now(UTC),
            event_name=call,
            event_source=f"{service}.amazonaws.com",
            user_identity={},
            aws_region="us-east-1",
        )
        given = {key.lower(): value for key, value in request.context.items()}

        def value(context: EvaluationContext, key: str) -> tuple[Any, str]:
            found = given.get(key.lower())
            status = condition_evaluator.NULL if found is None else condition_evaluator.RESOLVED
            return list(found) if isinstance(found, tuple) else found, status

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(condition_evaluator, "get_context_value_with_status", value)
            patch.setattr(self._engine._resource_extractor, "extract", lambda event: request.resource)
            found = self._engine.would_deny(event, EvaluationContext.from_event(event))
        return not found.denied, str(found.matched_statement.sid if found.matched_statement else found.reason)
