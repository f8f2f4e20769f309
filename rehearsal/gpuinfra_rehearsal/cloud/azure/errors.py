"""Azure errors."""

from __future__ import annotations

from gpuinfra_rehearsal.cloud.core.errors import ApiRejected, CreatedButFailed


class AzureError(ApiRejected):
    """An Azure API rejected a call."""

    def reported(self, doing: str) -> str:
        """`creating VirtualNetwork (net): Status=409 Code="..." Message="..."`."""
        return f'{doing}: Status={self.status} Code="{self.code}" Message="{self.message}"'


class AzureCreatedButFailed(AzureError, CreatedButFailed):
    """An operation failed after it started. The resource exists in the state Failed."""
