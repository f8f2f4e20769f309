"""The shape of a transformer language model: from a known name, from a `config.json` of Hugging Face, or from its number of parameters."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gpuinfra.base.errors import UsageError

_FILE = Path(__file__).with_name("models.json")
LARGEST = 100e12
"""Most parameters that are accepted. The largest published models have about 1e12."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelShape:
    """A decoder-only transformer. The numbers determine memory, FLOPs and the size of a checkpoint."""

    name: str
    parameters: float
    """Parameters in total, which determine the memory."""
    active: float
    """Parameters that each token uses, which determine the FLOPs. Less than `parameters` in a mixture of experts."""
    layers: int
    hidden: int
    """Width of the residual stream."""
    ffn: int
    """Width of the feed-forward layer of one token, over all active experts."""
    gated: bool
    """Whether the feed-forward layer has three matrices (SwiGLU) instead of two."""
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool = False
    """Whether the input and output embeddings are one matrix."""
    latent: int = 0
    """Values per token and layer in the cache of multi-head latent attention, or 0 for other attention."""
    source: str = ""
    assumed: bool = False
    """Whether layers and widths are derived from the number of parameters, so that memory and attention are approximate."""

    @property
    def is_moe(self) -> bool:
        """Whether the model is a mixture of experts."""
        return self.active < 0.98 * self.parameters

    @property
    def kv_width(self) -> int:
        """Width of the keys, which equals the width of the values."""
        return self.kv_heads * self.head_dim

    def flops_per_token(self, sequence: int) -> float:
        """Return the FLOPs to train on one token: `6 N + 6 L h s`.

        N are the active parameters, and the second term is causal attention over a sequence of s tokens. Recomputation is not counted.
        Source: arXiv 2001.08361 section 2.1 (6 N), arXiv 2204.02311 appendix B (attention, 12 L h s, of which a causal mask needs half).
        """
        return 6 * self.active + 6 * self.layers * self.hidden * sequence

    def lora_parameters(self, rank: int) -> float:
        """Return the parameters of LoRA on all linear layers: `r (d_in + d_out)` per matrix. Source: arXiv 2106.09685 section 4.1."""
        query = self.heads * self.head_dim
        attention = 2 * (self.hidden + query) + 2 * (self.hidden + self.kv_width)
        mlp = (3 if self.gated else 2) * (self.hidden + self.ffn)
        return rank * self.layers * (attention + mlp)


@cache
def known_models() -> Mapping[str, ModelShape]:
    """Return the known models by name, such as `llama-2-13b`."""
    content = json.loads(_FILE.read_text(encoding="utf-8"))
    columns: list[str] = content["columns"]
    models = {}
    for row in content["models"]:
        value = dict(zip(columns, row, strict=True))
        models[value["name"]] = ModelShape(
            name=value["name"],
            parameters=value["total_b"] * 1e9,
            active=value["active_b"] * 1e9,
            layers=value["layers"],
            hidden=value["hidden"],
            ffn=value["ffn"],
            gated=value["gated"],
            heads=value["heads"],
            kv_heads=value["kv_heads"],
            head_dim=value["head_dim"],
            vocabulary=value["vocabulary"],
            tied=value["tied"],
            latent=value["latent"],
            source=content["sources"][value["source"]],
        )
    return models


def model_of(text: str) -> ModelShape:
    """Return the model with a known name, in a `config.json`, or with a number of parameters such as `13B`. Raises `UsageError`."""
    name = text.strip().lower().removeprefix("meta-llama/").replace("_", "-").replace(" ", "-")
    models = known_models()
    for key in (name, name.rsplit("/", 1)[-1], f"meta-{name}"):
        if key in models:
            return models[key]
    if match := re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([mbt])?(?:-a([0-9]+(?:\.[0-9]+)?)([mbt])?)?", name):
        units = {"m": 1e6, "b": 1e9, "t": 1e12, None: 1.0}
        total = float(match[1]) * units[match[2]]
        active = float(match[3]) * units[match[4] or match[2]] if match[3] else total
        return model_with(total, active)
    path = Path(text).expanduser()
    if path.is_dir():
        path /= "config.json"
    if path.is_file():
        return model_in(path)
    from difflib import get_close_matches

    near = get_close_matches(name, models, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else "`gpuinfra size --list-models` lists the names"
    raise UsageError(
        f"--model is {text[:80]!r}; allowed: a known model, the path of a config.json, or parameters such as 13B or 30B-A3B; {hint}"
    )


def model_with(total: float, active: float | None = None) -> ModelShape:
    """Return a model with a number of parameters and usual proportions. Raises `UsageError` for an impossible number.

    `N = 12 L h^2` (arXiv 2001.08361 table 1), with `L = 32 (N / 7e9)^(1/3)`: the proportions of the Llama models.
    """
    active = total if active is None else active
    if not 1e6 <= total <= LARGEST:
        raise UsageError(
            f"--model has {total:,.0f} parameters; allowed: 1M to 100T; specify the parameters with a unit, such as 13B"
        )
    if not 0 < active <= total:
        raise UsageError(
            f"--model has {active / 1e9:g}B active of {total / 1e9:g}B parameters; allowed: at most all parameters; write the total first, such as 30B-A3B"
        )
    layers = max(4, round(32 * (active / 7e9) ** (1 / 3)))
    hidden = max(128, round(math.sqrt(active / (12 * layers)) / 128) * 128)
    heads = max(1, hidden // 128)
    return ModelShape(
        name=f"{total / 1e9:g}B" if active == total else f"{total / 1e9:g}B-A{active / 1e9:g}B",
        parameters=total,
        active=active,
        layers=layers,
        hidden=hidden,
        ffn=round(hidden * 8 / 3),
        gated=True,
        heads=heads,
        kv_heads=max(1, heads // 4) if heads % 4 == 0 else heads,
        head_dim=128,
        vocabulary=128_000 if total >= 1e9 else 50_000,
        source="the number of parameters, with N = 12 L h^2 (arXiv 2001.08361 table 1)",
        assumed=True,
    )


def model_in(path: Path) -> ModelShape:
    """Return the model in a `config.json` of Hugging Face. Raises `UsageError` with the missing or wrong field."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValueError, RecursionError) as problem:
        raise UsageError(
            f"--model {path} cannot be read as JSON: {type(problem).__name__}; specify a config.json of Hugging Face"
        ) from None
    if isinstance(value, dict) and isinstance(value.get("text_config"), dict):
        value = {**value, **value["text_config"]}
    if not isinstance(value, dict):
        raise UsageError(f"--model {path} does not contain a JSON object; specify a config.json of Hugging Face")

    def number(*names: str, default: int | None = None) -> int:
        for name in names:
            value_given = value.get(name)
            if value_given is None:
                continue
            if isinstance(value_given, bool) or not isinstance(value_given, int) or not 1 <= value_given <= 10_000_000:
                raise UsageError(
                    f"--model {path}: {name} is {str(value_given)[:40]!r}; allowed: a whole number above 0"
                )
            return value_given
        if default is None:
            raise UsageError(
                f"--model {path} has no {' or '.join(names)}; specify the config.json of a decoder-only model, or the parameters, such as 13B"
            )
        return default

    layers, hidden = number("num_hidden_layers", "n_layer", "n_layers"), number("hidden_size", "n_embd", "d_model")
    heads = number("num_attention_heads", "n_head", "n_heads")
    kv_heads = number("num_key_value_heads", "num_kv_heads", default=1 if value.get("multi_query") is True else heads)
    head_dim = number("head_dim", default=max(1, hidden // heads))
    vocabulary = number("vocab_size")
    gated = str(value.get("hidden_act", value.get("activation_function", "silu"))).startswith(
        ("silu", "swi", "gelu_pytorch_tanh")
    )
    wide = number("intermediate_size", "n_inner", "ffn_dim", default=4 * hidden)
    experts = number("num_local_experts", "n_routed_experts", "num_experts", default=1)
    chosen = number("num_experts_per_tok", "num_experts_per_token", default=1) if experts > 1 else 1
    if chosen > experts:
        raise UsageError(f"--model {path}: num_experts_per_tok is {chosen}, but the model has {experts} experts")
    expert = number("moe_intermediate_size", default=wide) if experts > 1 else wide
    shared = value.get("n_shared_experts") or 0
    shared = shared if experts > 1 and isinstance(shared, int) else 0
    first = value.get("first_k_dense_replace") or 0
    dense = min(layers, first) if experts > 1 and isinstance(first, int) else 0
    matrices = 3 if gated else 2
    latent = number("kv_lora_rank") if value.get("kv_lora_rank") else 0
    if latent:
        rope, q_rank = number("qk_rope_head_dim", default=64), number("q_lora_rank", default=hidden)
        nope, v_dim = number("qk_nope_head_dim", default=128), number("v_head_dim", default=128)
        attention = (
            hidden * q_rank
            + q_rank * heads * (nope + rope)
            + hidden * (latent + rope)
            + latent * heads * (nope + v_dim)
            + heads * v_dim * hidden
        )
        latent += rope
    else:
        attention = 2 * hidden * heads * head_dim + 2 * hidden * kv_heads * head_dim
    tied = value.get("tie_word_embeddings") is True
    embeddings = vocabulary * hidden * (1 if tied else 2)
    sparse = layers - dense

    def parameters(count: int) -> float:
        return float(
            embeddings
            + layers * (attention + 2 * hidden)
            + hidden
            + dense * matrices * hidden * wide
            + sparse * matrices * hidden * expert * (count + shared)
        )

    return ModelShape(
        name=str(value.get("_name_or_path") or value.get("model_type") or path.parent.name or "model")[:60],
        parameters=parameters(experts),
        active=parameters(chosen),
        layers=layers,
        hidden=hidden,
        ffn=expert * (chosen + shared),
        gated=gated,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocabulary=vocabulary,
        tied=tied,
        latent=latent,
        source=f"{path}, with N = V h + L (attention + feed-forward + 2 h) + h",
    )
