"""The drill in the second region itself: `gpuinfra drill STACK --live` (docs/guides/drill.md#drill-in-your-account)."""
