"""Memory by published formulas agrees with the tables of their papers and with published verdicts."""

from __future__ import annotations

from typing import Any

import pytest

from gpuinfra.sizing.fit import FittedLayout, fitted
from gpuinfra.sizing.measured import SizingGoal
from gpuinfra.sizing.memory import (
    RECIPES,
    ParallelLayout,
    Recipe,
    Recompute,
    activations,
    adapter,
    cache_per_token,
    training,
)
from gpuinfra.sizing.request import SizingRequest
from gpuinfra.sizing.shape import ModelShape, model_of, model_with
from tests.sizing.published import of_kind

LLAMA8 = model_of("llama-3.1-8b")
KNOWN = {"torchtune": "llama-3.1-8b", "qlora": "llama-1-65b"}
MODELS = {
    "torchtune 8B full fine-tune on one A6000": "llama-3.1-8b",
    "torchtune 8B QLoRA on one 4090": "llama-3.1-8b",
    "torchtune 70B full on 8 A100 with CPU offload": "llama-3.1-70b",
    "LitGPT Llama-2 7B LoRA, micro-batch 4": "llama-2-7b",
    "LitGPT Llama-2 13B LoRA, micro-batch 1": "llama-2-13b",
    "LitGPT Falcon 40B QLoRA nf4": "falcon-40b",
    "LitGPT Llama-2 13B LoRA on 4 A100": "llama-2-13b",
    "QLoRA 65B on one 48 GB GPU": "llama-1-65b",
}
"""Name of a published verdict -> the model. LitGPT trains without recomputation, torchtune and QLoRA with it."""


def verdict(record: dict[str, Any], recipe: Recipe | None = None) -> FittedLayout:
    """The layout for a published verdict, with its recipe unless another is given."""
    method = record["method"]
    goal = SizingGoal.QLORA if "QLoRA" in method else SizingGoal.LORA if "LoRA" in method else SizingGoal.FULL
    named = Recipe.ADAMW_OFFLOAD if "offload" in method else Recipe.ADAMW_8BIT_FUSED
    request = SizingRequest(
        model=model_of(MODELS[record["name"]]),
        goal=goal,
        tokens=1e6,
        sequence=record["seq_len_tokens"],
        recipe=Recipe.ADAMW if goal.is_adapter else recipe or named,
        rank=8,
        micro_batch=record["micro_batch"],
        recompute=Recompute.NONE if record["family"] == "litgpt" else Recompute.FULL,
    )
    return fitted(request, record["gpu_count"], record["gpu_count"], record["gpu_memory_gb"] * 2.0**30)


@pytest.mark.parametrize("record", of_kind("finetune_memory"), ids=lambda record: record["name"])
def test_the_verdict_of_a_source_is_the_same(record: dict[str, Any]) -> None:
    """A fine-tuning that fits in its source fits here, and one that ran out of memory does not."""
    assert verdict(record).fits is record["fits_in_source"]


@pytest.mark.parametrize(
    "record", [one for one in of_kind("finetune_memory") if "full" in one["method"]], ids=lambda record: record["name"]
)
def test_full_fine_tuning_with_sixteen_bytes_is_refused_where_a_source_used_fewer(record: dict[str, Any]) -> None:
    """AdamW in mixed precision does not fit where the source needed an 8-bit optimizer or host memory."""
    assert not verdict(record, Recipe.ADAMW).fits


@pytest.mark.parametrize(("stage", "gigabytes"), [("3", 1.875)], ids=["stage 3"])
def test_sharded_states_agree_with_zero(stage: str, gigabytes: float) -> None:
    """7.5 billion parameters on 64 GPUs need 1.9 GB of states with ZeRO stage 3 (arXiv 1910.02054 figure 1)."""
    need = training(model_with(7.5e9), 1, ParallelLayout(gpus=64), Recipe.ADAMW)
    assert (need.weights + need.gradients + need.optimizer) / 1e9 == pytest.approx(gigabytes)


@pytest.mark.parametrize(
    ("recipe", "total"),
    [(Recipe.ADAMW, 16), (Recipe.ADAMW_FP32_GRADIENTS, 18), (Recipe.ADAMW_BF16, 8), (Recipe.ADAMW_8BIT, 6)],
    ids=lambda value: str(value),
)
def test_a_recipe_has_the_bytes_of_its_source(recipe: Recipe, total: float) -> None:
    """The bytes per parameter of a recipe are those that its source prints."""
    assert RECIPES[recipe].total == total


def test_recomputed_activations_are_the_inputs_of_the_layers() -> None:
    """Full recomputation keeps 2 s b h per layer: 8 GiB for Llama 3.1 8B and 32,768 tokens (stas00/ml-engineering)."""
    layout = ParallelLayout(gpus=1, recompute=Recompute.FULL)
    whole = ParallelLayout(gpus=1, recompute=Recompute.NONE)
    layer = activations(LLAMA8, 32768, whole) / LLAMA8.layers
    assert (activations(LLAMA8, 32768, layout) - layer) / 2**30 == pytest.approx(8)


@pytest.mark.parametrize(
    ("name", "size"),
    [("llama-3.1-8b", 131_072), ("llama-3.1-70b", 327_680), ("llama-3.1-405b", 516_096), ("opt-13b", 819_200)],
)
def test_the_cache_of_a_token_has_the_published_size(name: str, size: int) -> None:
    """The cache of one token is 2 L k values of two bytes."""
    assert cache_per_token(model_of(name)) == size


def test_latent_attention_has_a_smaller_cache() -> None:
    """DeepSeek V3 stores 576 values per layer and token (arXiv 2412.19437 section 4.2: 512 and 64)."""
    assert cache_per_token(model_of("deepseek-v3")) == 61 * 576 * 2


@pytest.mark.parametrize(("name", "adapters"), [("llama-3.1-8b", 41_943_040), ("llama-3.1-70b", 207_093_760)])
def test_lora_has_the_published_parameters(name: str, adapters: int) -> None:
    """Rank 16 on all seven linear layers."""
    assert model_of(name).lora_parameters(16) == adapters


def test_qlora_needs_a_quarter_of_the_weights_of_lora() -> None:
    """4.127 bits instead of 16 for all matrices but the embeddings."""
    model, layout = model_of("llama-1-65b"), ParallelLayout(gpus=1)
    ratio = (
        adapter(model, 512, layout, 16, quantized=True).weights
        / adapter(model, 512, layout, 16, quantized=False).weights
    )
    assert 0.25 < ratio < 0.28


def test_tensor_parallelism_divides_activations() -> None:
    """Eight GPUs of a tensor-parallel group each hold an eighth of the activations."""
    one, eight = (
        activations(LLAMA8, 4096, ParallelLayout(gpus=8, tensor=size, recompute=Recompute.NONE)) for size in (1, 8)
    )
    assert one / eight == pytest.approx(8)


def test_tensor_parallelism_stays_within_a_node() -> None:
    """A layout never has more tensor-parallel GPUs than a node."""
    request = SizingRequest(model=model_of("llama-3.1-405b"), tokens=1e12, sequence=131_072)
    assert fitted(request, 1024, 8, 80e9).layout.tensor <= 8


def test_the_global_batch_limits_data_parallelism() -> None:
    """With one sequence for each step, all GPUs hold parts of one model."""
    request = SizingRequest(model=LLAMA8, tokens=1e12, sequence=4096, batch_tokens=4096 * 8)
    assert fitted(request, 64, 8, 80e9).layout.data <= 8


@pytest.mark.parametrize(
    "model", [model_of("llama-3.1-8b"), model_of("mixtral-8x7b"), model_with(13e9)], ids=lambda model: model.name
)
def test_more_gpus_need_less_memory_each(model: ModelShape) -> None:
    """Sharded states shrink with the number of GPUs."""
    needs = [training(model, 4096, ParallelLayout(gpus=gpus), Recipe.ADAMW).total for gpus in (8, 64, 512)]
    assert needs == sorted(needs, reverse=True)
