"""The job that a cluster runs, for the forecast of its throughput, energy and price in a plan."""

from typing import Annotated, Literal

from pydantic import Field, StrictInt

from gpuinfra.spec.base import Line, Number, SpecModel, Unit


class Workload(SpecModel):
    """A training job. `gpuinfra size` finds the machines for it, and `gpuinfra size --init` writes this section."""

    model: Line = Field(examples=["llama-2-13b"])
    """Name of a model that `gpuinfra size --list-models` lists, or its parameters, such as `13B` or `30B-A3B`."""
    goal: Literal["pretrain", "full", "lora", "qlora"] = "pretrain"
    """What is trained: all parameters from the start (`pretrain`), all parameters of a trained model (`full`), or an adapter."""
    tokens_billion: Annotated[Number, Unit("billions of tokens")] | None = Field(
        default=None, gt=0, le=1_000_000, examples=[2000.0]
    )
    """Tokens to train on. If omitted, the plan shows no days."""
    sequence: Annotated[StrictInt, Unit("tokens")] = Field(default=4096, ge=16, le=4_000_000, examples=[4096])
    """Length of a training sequence."""
    precision: Literal["bf16", "fp8", "fp4"] | None = Field(default=None, examples=["bf16"])
    """Precision of the matrix multiplications. If omitted, FP8 on Blackwell GPUs and BF16 on older GPUs."""
    recipe: Literal[
        "adamw", "adamw-fp32-gradients", "adamw-bf16", "adamw-8bit", "adamw-8bit-fused", "adamw-offload", "sgd"
    ] = "adamw"
    """What is stored for each trained parameter. `adamw` has 16 bytes: BF16 weights and gradients, an FP32 copy and two moments."""
