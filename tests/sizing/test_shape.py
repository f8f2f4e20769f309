"""Models are read from names, from config.json files and from numbers of parameters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuinfra.base.errors import UsageError
from gpuinfra.sizing.shape import known_models, model_in, model_of, model_with

LLAMA = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "hidden_act": "silu",
    "model_type": "llama",
}
MIXTRAL = {**LLAMA, "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2}
DEEPSEEK = {
    "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_attention_heads": 128, "num_key_value_heads": 128,
    "num_hidden_layers": 61, "vocab_size": 129280, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
    "first_k_dense_replace": 3, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "hidden_act": "silu",
}  # fmt: skip


def config(folder: Path, value: object) -> Path:
    """A config.json with a value."""
    path = folder / "config.json"
    path.write_text(json.dumps(value))
    return path


@pytest.mark.parametrize(
    ("value", "total", "active"),
    [(LLAMA, 8.03e9, 8.03e9), (MIXTRAL, 46.7e9, 12.9e9), (DEEPSEEK, 671e9, 37e9)],
    ids=["dense", "experts", "latent attention"],
)
def test_parameters_follow_from_a_config(tmp_path: Path, value: object, total: float, active: float) -> None:
    """The parameters of a config.json are those that its publisher prints."""
    model = model_in(config(tmp_path, value))
    assert model.parameters == pytest.approx(total, rel=0.01)
    assert model.active == pytest.approx(active, rel=0.03)


def test_a_config_of_a_multimodal_model_contains_the_text_model(tmp_path: Path) -> None:
    """The field `text_config` holds the language model."""
    assert model_of(str(config(tmp_path, {"text_config": LLAMA}))).layers == 32


@pytest.mark.parametrize("name", known_models())
def test_a_known_model_has_the_parameters_of_its_shape(name: str) -> None:
    """The parameters of a dense model follow from its widths, within 3 percent."""
    model = known_models()[name]
    if model.is_moe:
        assert model.active < model.parameters
        return
    attention = 2 * model.hidden * model.heads * model.head_dim + 2 * model.hidden * model.kv_width
    mlp = (3 if model.gated else 2) * model.hidden * model.ffn
    found = model.vocabulary * model.hidden * (1 if model.tied else 2) + model.layers * (
        attention + mlp + 2 * model.hidden
    )
    assert found == pytest.approx(model.parameters, rel=0.03)


@pytest.mark.parametrize(
    ("text", "total", "active"),
    [("13B", 13e9, 13e9), ("30B-A3B", 30e9, 3e9), ("1.5b", 1.5e9, 1.5e9), ("125M", 125e6, 125e6)],
)
def test_a_number_is_a_model(text: str, total: float, active: float) -> None:
    """Parameters with a unit make a model with usual proportions."""
    model = model_of(text)
    assert (model.parameters, model.active, model.assumed) == (total, active, True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lama-2-13b", "did you mean llama-2-13b?"),
        ("3B-A30B", "at most all parameters"),
        ("0B", "allowed: 1M to 100T"),
        ("999T", "allowed: 1M to 100T"),
        ("", "allowed: a known model"),
        ("nothing", "--list-models"),
    ],
)
def test_a_wrong_model_gives_one_error(text: str, words: str) -> None:
    """The error names the allowed forms and the fix."""
    with pytest.raises(UsageError, match=words.replace("?", r"\?")):
        model_of(text)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([], "does not contain a JSON object"),
        ({"hidden_size": 4096}, "has no num_hidden_layers"),
        ({**LLAMA, "hidden_size": "big"}, "hidden_size is 'big'"),
        ({**LLAMA, "num_hidden_layers": -1}, "num_hidden_layers is '-1'"),
        ({**MIXTRAL, "num_experts_per_tok": 9}, "but the model has 8 experts"),
    ],
    ids=["list", "no layers", "text", "negative", "more experts"],
)
def test_a_wrong_config_gives_one_error(tmp_path: Path, value: object, words: str) -> None:
    """The error names the field and what is allowed."""
    with pytest.raises(UsageError, match=words):
        model_in(config(tmp_path, value))


def test_a_file_that_is_not_json_is_refused(tmp_path: Path) -> None:
    """The error names the file."""
    path = tmp_path / "config.json"
    path.write_text("{")
    with pytest.raises(UsageError, match="cannot be read as JSON"):
        model_in(path)


def test_usual_proportions_give_the_number_of_parameters() -> None:
    """The layers of a model from its parameters hold about these parameters."""
    model = model_with(13e9)
    assert 12 * model.layers * model.hidden**2 == pytest.approx(13e9, rel=0.15)
