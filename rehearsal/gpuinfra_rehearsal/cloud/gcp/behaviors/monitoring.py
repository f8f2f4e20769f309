"""Resources of Cloud Monitoring and Cloud Billing whose IDs the service assigns, so two stacks of a project can have the same logical names."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from gpuinfra_rehearsal.cloud.core.behavior import Behavior, behaves
from gpuinfra_rehearsal.cloud.gcp.ids import PROJECT

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Call, Cloud

_COLLECTIONS = {
    "gcp:monitoring/notificationChannel:NotificationChannel": "notificationChannels",
    "gcp:monitoring/alertPolicy:AlertPolicy": "alertPolicies",
}
_FIRST = 1_000_000_000_000_000_000
_BUDGET = "gcp:billing/budget:Budget"


@behaves
class Assigned(Behavior):
    """A notification channel or an alert policy. Cloud Monitoring assigns its number
    (https://cloud.google.com/monitoring/api/ref_v3/rest/v3/projects.notificationChannels, retrieved 2026-11-26)."""

    types = tuple(_COLLECTIONS)

    def identify(self, cloud: Cloud, call: Call) -> str | None:
        return f"projects/{PROJECT}/{_COLLECTIONS[call.token]}/{_FIRST + cloud.store.next('monitoring')}"

    def created(self, cloud: Cloud, call: Call) -> None:
        call.outputs["name"] = call.id

    updated = created


@behaves
class Budget(Behavior):
    """A budget of a billing account. Cloud Billing assigns its ID
    (https://cloud.google.com/billing/docs/reference/budget/rest/v1/billingAccounts.budgets, retrieved 2026-11-26)."""

    types = (_BUDGET,)

    def identify(self, cloud: Cloud, call: Call) -> str | None:
        account = str(call.plain.get("billingAccount")).rpartition("/")[2]
        return f"billingAccounts/{account}/budgets/{UUID(int=cloud.store.next('budget'))}"

    def created(self, cloud: Cloud, call: Call) -> None:
        call.outputs["name"] = call.id.rpartition("/")[2]

    updated = created
