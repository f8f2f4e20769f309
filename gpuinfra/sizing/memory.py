"""The memory of a training or inference job on each GPU, by published formulas.

All sizes are bytes on one GPU. `need` adds the parts, and `MemoryNeed.fits` compares the sum with `USABLE` of the memory of the GPU.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from gpuinfra.sizing.shape import ModelShape

USABLE = 0.92
"""Usable share of the memory: the rest is fragmentation and the peaks of the allocator (stas00/ml-engineering:training/performance, 0.9 to 0.95)."""
CONTEXT = 1.0e9
"""CUDA context and kernels on each GPU: 0.5 to 2 GiB (stas00/ml-engineering:training/performance at 744d01e1)."""
COLLECTIVES = 2.0e9
"""Buffers of NCCL and torch.distributed on each GPU of a job with several GPUs: 1 to 2 GiB (same source)."""
LOGIT_BYTES = 6
"""Bytes per logit: BF16 logits and their FP32 copy, which the loss reads in place (same source: 4, often 6)."""


class Recipe(StrEnum):
    """What a training job keeps for each trained parameter."""

    ADAMW = "adamw"
    ADAMW_FP32_GRADIENTS = "adamw-fp32-gradients"
    ADAMW_BF16 = "adamw-bf16"
    ADAMW_8BIT = "adamw-8bit"
    ADAMW_8BIT_FUSED = "adamw-8bit-fused"
    ADAMW_OFFLOAD = "adamw-offload"
    SGD = "sgd"


@dataclass(frozen=True, slots=True)
class RecipeBytes:
    """Bytes per trained parameter."""

    weights: float
    gradients: float
    optimizer: float
    meaning: str
    source: str
    offloaded: bool = False
    """Whether gradients, optimizer states and idle weights are in the memory of the host."""

    @property
    def total(self) -> float:
        """Bytes per parameter in total."""
        return self.weights + self.gradients + self.optimizer


_ZERO, _STAS = "arXiv 1910.02054 section 3.1", "stas00/ml-engineering:training/performance at 744d01e1"
_TUNE = "meta-pytorch/torchtune:README.md at bd2a0fc7"
RECIPES = {
    Recipe.ADAMW: RecipeBytes(
        2, 2, 12, "AdamW, mixed precision: BF16 weights and gradients, FP32 copy and moments", _ZERO
    ),
    Recipe.ADAMW_FP32_GRADIENTS: RecipeBytes(
        2, 4, 12, "AdamW, mixed precision, with gradients accumulated in FP32", _STAS
    ),
    Recipe.ADAMW_BF16: RecipeBytes(2, 2, 4, "AdamW with BF16 weights, gradients and moments", _STAS),
    Recipe.ADAMW_8BIT: RecipeBytes(2, 2, 2, "AdamW with BF16 weights and 8-bit moments", _STAS),
    Recipe.ADAMW_8BIT_FUSED: RecipeBytes(
        2,
        0.1,
        2,
        "paged 8-bit AdamW, with the optimizer step in the backward pass, so that one layer has gradients",
        _TUNE,
    ),
    Recipe.ADAMW_OFFLOAD: RecipeBytes(
        2, 2, 12, "AdamW with weights, gradients and moments in host memory", _TUNE, offloaded=True
    ),
    Recipe.SGD: RecipeBytes(2, 2, 8, "SGD with momentum, mixed precision: FP32 copy and momentum", _STAS),
}


class Recompute(StrEnum):
    """Which activations the backward pass calculates again."""

    NONE = "none"
    FULL = "full"


@dataclass(frozen=True, kw_only=True, slots=True)
class ParallelLayout:
    """How a model is divided over GPUs. The GPUs of one node form a tensor-parallel group."""

    gpus: int
    tensor: int = 1
    pipeline: int = 1
    micro_batch: int = 1
    recompute: Recompute = Recompute.FULL

    @property
    def data(self) -> int:
        """Groups of GPUs with different data. All states are sharded over them (ZeRO stage 3, fully sharded data parallel)."""
        return max(1, self.gpus // (self.tensor * self.pipeline))

    def __str__(self) -> str:
        parts = [
            f"FSDP {self.data}" if self.data > 1 else "",
            f"TP {self.tensor}" if self.tensor > 1 else "",
            f"PP {self.pipeline}" if self.pipeline > 1 else "",
        ]
        recompute = "full recompute" if self.recompute is Recompute.FULL else "no recompute"
        return f"{' x '.join(filter(None, parts)) or '1 GPU'}, {recompute}, micro-batch {self.micro_batch}"


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryNeed:
    """The memory that a job needs on each GPU, in bytes."""

    weights: float
    gradients: float = 0.0
    optimizer: float = 0.0
    activations: float = 0.0
    logits: float = 0.0
    cache: float = 0.0
    """Keys and values of inference."""
    gathered: float = 0.0
    """Weights of the layers that fully sharded data parallel has gathered."""
    overhead: float = CONTEXT
    host: float = 0.0
    """Bytes in the memory of the host, for each GPU."""

    @property
    def total(self) -> float:
        """Bytes on the GPU."""
        return (
            self.weights
            + self.gradients
            + self.optimizer
            + self.activations
            + self.logits
            + self.cache
            + self.gathered
            + self.overhead
        )

    def fits(self, memory: float) -> bool:
        """Return whether the job fits in a GPU with this memory in bytes."""
        return self.total <= USABLE * memory

    @property
    def largest(self) -> str:
        """The name of the largest part."""
        parts = ("weights", "gradients", "optimizer", "activations", "logits", "cache", "gathered")
        return max(parts, key=lambda name: getattr(self, name))


def layer_activations(model: ModelShape, sequence: int, micro_batch: int) -> float:
    """Return the bytes of the activations of one layer in 16 bits without recomputation, with FlashAttention and without dropout.

    `2 s b (7 h + 2 a_d + 2 k + m f)`: the inputs of both norms (2 h), of the projections and of the feed-forward layer (2 h), queries before and
    after rotation (2 a_d), keys and values (2 k, and k rotated), attention output and residuals (3 h), and the feed-forward layer, where m is 4 with
    a gate and 2 without. This is formula 2 of arXiv 2205.05198, 34 s b h, without its dropout masks and with the widths of the model. Checked against
    LitGPT's tutorials/resource-tables.md at 26857050: Llama 2 13B with one sequence of 1,304 tokens, 38.1 GB measured.
    """
    query, key = model.heads * model.head_dim, model.kv_width
    values = 6 * model.hidden + 2 * query + 3 * key + (4 if model.gated else 2) * model.ffn
    return 2.0 * sequence * micro_batch * values


def activations(model: ModelShape, sequence: int, layout: ParallelLayout) -> float:
    """Return the bytes of all activations on one GPU.

    With full recomputation, each layer keeps its input, `2 s b h` (arXiv 2205.05198 section 5), and one layer is calculated at a time. Tensor
    parallelism with sequence parallelism divides all of it (table 2 there). The first pipeline stage holds as many micro-batches as stages.
    """
    layers = model.layers / layout.pipeline
    whole = layer_activations(model, sequence, layout.micro_batch)
    in_flight = layout.pipeline
    if layout.recompute is Recompute.NONE:
        return whole * layers * in_flight / layout.tensor
    kept = 2.0 * sequence * layout.micro_batch * model.hidden * layers * in_flight
    return (kept + whole) / layout.tensor


def training(model: ModelShape, sequence: int, layout: ParallelLayout, recipe: Recipe) -> MemoryNeed:
    """Return the memory of pre-training or full fine-tuning.

    States are sharded over all GPUs: `(weights + gradients + optimizer) N / (t p d)`, ZeRO stage 3 (arXiv 1910.02054 section 5). Two gathered layers
    stay in memory, at most the embedding and one layer.
    """
    parts = RECIPES[recipe]
    shard = model.parameters / layout.gpus
    layer = model.parameters / model.layers
    gathered = 2 * 2 * layer / layout.tensor if layout.data > 1 or parts.offloaded else 0.0
    need = MemoryNeed(
        weights=parts.weights * shard,
        gradients=parts.gradients * shard,
        optimizer=parts.optimizer * shard,
        activations=activations(model, sequence, layout),
        logits=LOGIT_BYTES * sequence * layout.micro_batch * model.vocabulary / layout.tensor,
        gathered=gathered,
        overhead=CONTEXT + (COLLECTIVES if layout.gpus > 1 else 0.0),
    )
    if parts.offloaded:
        return replace(need, weights=0.0, gradients=0.0, optimizer=0.0, host=parts.total * shard)
    return need


QLORA_BYTES = (4 + 0.127) / 8
"""Bytes per parameter in 4-bit NormalFloat with double quantisation: 4 bits and 0.127 bits of constants (arXiv 2305.14314 section 3)."""


def adapter(model: ModelShape, sequence: int, layout: ParallelLayout, rank: int, *, quantized: bool) -> MemoryNeed:
    """Return the memory of LoRA, or of QLoRA if the frozen weights are `quantized`.

    Frozen BF16 weights, `2 N`, or 4-bit weights with BF16 embeddings; and 16 bytes for each parameter of the adapter (arXiv 2106.09685, 2305.14314).
    """
    embedding = model.vocabulary * model.hidden * (1 if model.tied else 2)
    frozen = 2 * embedding + QLORA_BYTES * max(0.0, model.parameters - embedding) if quantized else 2 * model.parameters
    trained = model.lora_parameters(rank) / layout.gpus
    layer = 2 * model.parameters / model.layers
    gathered = layer / layout.tensor * (2 if layout.data > 1 else 1 if quantized else 0)
    return MemoryNeed(
        weights=frozen / layout.gpus + 2 * trained,
        gradients=2 * trained,
        optimizer=12 * trained,
        activations=activations(model, sequence, layout),
        logits=LOGIT_BYTES * sequence * layout.micro_batch * model.vocabulary / layout.tensor,
        gathered=gathered,
        overhead=CONTEXT + (COLLECTIVES if layout.gpus > 1 else 0.0),
    )


def cache_per_token(model: ModelShape, width: float = 2.0) -> float:
    """Return the bytes of the cache for one token: `2 L k` values, where k is the width of the keys (arXiv 2309.06180 section 2).

    Multi-head latent attention stores one latent vector per layer instead, `L c` (arXiv 2405.04434 section 2.1).
    """
    values = model.layers * model.latent if model.latent else 2 * model.layers * model.kv_width
    return width * values


def inference(model: ModelShape, tokens: float, tensor: int, weight_bytes: float) -> MemoryNeed:
    """Return the memory of inference for a number of tokens in the cache: weights and cache are divided over a tensor-parallel group.

    Keys are divided over at most as many GPUs as there are key heads. Source: arXiv 2309.06180; 2 GB for CUDA graphs and activations.
    """
    split = 1 if model.latent else min(tensor, model.kv_heads)
    return MemoryNeed(
        weights=weight_bytes * model.parameters / tensor,
        cache=cache_per_token(model) * tokens / split,
        overhead=CONTEXT + COLLECTIVES,
    )
