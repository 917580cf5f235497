"""Backbone from Hugging Face transformers: BERT, DistilBERT, GPT-2, MiniLM, or any other that AutoModel loads."""

from __future__ import annotations

import dataclasses
import inspect
import json
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from twofold import storage
from twofold.data.backbones import FOLDER, clearly, read_backbone_tokenizer, transformers_tokenizer
from twofold.data.named_models import DEFAULT, MODELS, folder_of
from twofold.data.tokenizer import TextTokenizer
from twofold.encoders import EncoderConfig
from twofold.errors import ANYWAY, TwofoldError, listed
from twofold.inputs.text import Tokens
from twofold.layers.blocks import dropout
from twofold.layers.sizes import built_without_memory, refuse_counts, refuse_labels
from twofold.types import Batch, Encoder, Hidden, HiddenSpec, Vocabulary

DEFAULT_WIDTH = 384
SAFELY: dict[str, Any] = {"dtype": torch.float32, "trust_remote_code": False}
WIDTHS = ("hidden_size", "n_embd", "d_model", "dim")
"""Names of the settings that hold the width of the states."""
DROPOUTS = ["dropout", "dropout_rate", "hidden_dropout", "hidden_dropout_prob", "mlp_dropout", "embedding_dropout"]
DROPOUTS += ["resid_pdrop", "embd_pdrop", "resid_dropout", "embed_dropout"]
ATTENTION_DROPOUTS = ("attention_probs_dropout_prob", "attention_dropout", "attn_pdrop")
CONSTANTS = (".position_ids", ".attn.bias", ".attn.masked_bias", ".inv_freq")
"""Suffixes of constant tensors that older versions of transformers saved."""
HEADS = ("cls.", "lm_head.", "classifier.", "score.", "qa_outputs.")
"""Prefixes of the tensors of prediction heads."""
BOTH_WAYS = ("bert-generation", "cpmant", "xlnet")
"""Architectures of language models whose attention is bidirectional."""


@dataclass(frozen=True)
class Config(EncoderConfig):
    """Settings of a pretrained backbone."""

    name: str = DEFAULT
    """Backbone: a named model such as `default`, a folder, or a hub id; safetensors only, and no remote code is run."""
    dropout: float = 0.1
    """Dropout probability in the backbone."""
    attention_dropout: float = 0.0
    """Dropout probability on the attention weights; slow on CPUs, where fused attention does not support it."""
    architecture: dict[str, Any] | None = field(default=None, repr=False)
    """Settings of the backbone (its `config.json`), filled in when the backbone is first loaded."""

    def __post_init__(self) -> None:
        if self.name in MODELS and MODELS[self.name].encoder.get("name") != self.name:
            raise ValueError(f"name {self.name}: write encoder: {self.name}, which another kind of encoder reads")

    def spec(self) -> HiddenSpec:
        if self.name == DEFAULT and self.architecture is None:
            return HiddenSpec(states=DEFAULT_WIDTH)
        settled = self.architecture or _architecture(self.name)
        width = next((settled[name] for name in WIDTHS if isinstance(settled.get(name), int)), None)
        if width is None:
            raise TwofoldError(f"{self.name}: its settings do not tell the width of its states ({', '.join(WIDTHS)})")
        return HiddenSpec(states=width, causal=_is_causal(settled))

    def gives(self) -> frozenset[str]:
        return frozenset(["states", "finish"])

    def settled(self) -> Self:
        if self.architecture is not None:
            return self
        settled = dataclasses.replace(self, architecture=_architecture(self.name))
        if shapes := _shapes(self.name):  # otherwise filling it says that there are no weights
            about = settled.architecture
            built_without_memory(lambda: _network(_settings(settled)), about, shapes, self.name, FOLDER)
        return settled

    def longest(self) -> int | None:
        with clearly(self.name), torch.device("meta"):
            settings = _settings(self)
            return _longest(_network(settings), settings)

    def folder(self) -> Path | None:
        from huggingface_hub import try_to_load_from_cache

        if Path(place := folder_of(self.name)).is_dir():
            return Path(place)
        with clearly(self.name):
            cached = try_to_load_from_cache(place, "config.json")
        return Path(cached).parent if isinstance(cached, str) else None

    def build(self, vocabulary: Vocabulary, needs: frozenset[str]) -> PretrainedEncoder:
        return PretrainedEncoder(self, vocabulary)

    def own_tokenizer(self, start: bool = True, lowercase: bool = False) -> TextTokenizer:
        """Returns the tokenizer of the backbone.

        start: puts its start token before texts if it adds no special tokens itself
        lowercase: lowercases texts, even if the tokenizer does not
        """
        with clearly(self.name):
            return read_backbone_tokenizer(self.name, folder_of(self.name), FOLDER, start, lowercase)

    def fill(self, encoder: Encoder, anyway: bool = False) -> None:
        assert isinstance(encoder, PretrainedEncoder)
        with clearly(self.name):
            encoder.backbone.load_state_dict(_pretrained(self.name, _settings(self), anyway).state_dict())

    def write_backbone(self, encoder: Encoder, tokenizer: TextTokenizer, limit: int, folder: Path) -> None:
        assert isinstance(encoder, PretrainedEncoder)
        with clearly(self.name):
            encoder.backbone.save_pretrained(folder)
            transformers_tokenizer(tokenizer, limit, encoder.takes_segments).save_pretrained(folder)


class PretrainedEncoder(Encoder):
    """Pretrained encoder: its states are those of the backbone's last layer."""

    def __init__(self, config: Config, vocabulary: Vocabulary) -> None:
        super().__init__()
        with clearly(config.name, "its architecture may need another version of transformers"):
            settings = _settings(config)
            self.backbone: Any = _network(settings)
        _check_limits(config.name, self.backbone, settings, vocabulary)
        for module in list(self.backbone.modules()):
            for name, inner in module.named_children():
                if isinstance(inner, nn.Dropout):
                    setattr(module, name, Dropout(inner.p))
        arguments = inspect.signature(self.backbone.forward).parameters
        self.takes_segments = (getattr(settings, "type_vocab_size", 0) or 0) > 1 and "token_type_ids" in arguments
        self.options = {"use_cache": False} if "use_cache" in arguments else {}

    def forward(self, batch: Batch) -> Hidden:
        text = batch.read(Tokens)
        given: dict[str, Tensor] = {"input_ids": text.tokens, "attention_mask": text.mask.long()}
        if self.takes_segments and text.segments is not None:
            given["token_type_ids"] = text.segments
        return Hidden(mask=text.mask, states=self.backbone(**given, **self.options).last_hidden_state)

    def table(self) -> nn.Parameter:
        return self.backbone.get_input_embeddings().weight  # type: ignore[no-any-return]


class Dropout(nn.Dropout):
    """Fast dropout on CPUs; attention only reads its probability, so that it can stand there too."""

    def forward(self, values: Tensor) -> Tensor:
        return dropout(values, self.p, self.training)


def _architecture(name: str) -> dict[str, Any]:
    """Reads all settings of the backbone; code that they name is not run."""
    from transformers import AutoConfig
    from transformers.utils.hub import cached_file

    with clearly(name):
        given = storage.parse_json(Path(str(cached_file(folder_of(name), "config.json"))).read_bytes())
        refuse_labels(given, name)
        if shapes := _shapes(name):
            refuse_counts(given, shapes, name, FOLDER)
        config = AutoConfig.from_pretrained(folder_of(name), trust_remote_code=False)
    settings: dict[str, Any] = json.loads(config.to_json_string(use_diff=True))
    settings.pop("auto_map", None)
    if hasattr(config, "hidden_size"):
        settings.setdefault("hidden_size", config.hidden_size)
    return {**settings, "model_type": config.model_type}


def _is_causal(settled: dict[str, Any]) -> bool:
    """Returns True for a causal backbone: one that was trained as a language model and for nothing else."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as WRITE
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES as FILL_GAPS

    kind = settled.get("model_type")
    only_writes = kind in WRITE and kind not in FILL_GAPS and kind not in BOTH_WAYS
    return not settled.get("is_encoder_decoder") and (only_writes or bool(settled.get("is_decoder")))


def _settings(config: Config) -> Any:
    """Creates the settings of the backbone, with our dropout probabilities."""
    from transformers import AutoConfig

    kind = dict(config.architecture or _architecture(config.name))
    refuse_labels(kind, config.name)
    settings = AutoConfig.for_model(kind.pop("model_type"), **kind)
    for names, share in ((DROPOUTS, config.dropout), (ATTENTION_DROPOUTS, config.attention_dropout)):
        for name in names:
            if hasattr(settings, name):
                setattr(settings, name, share)
    return settings


def _pretrained(name: str, settings: Any, anyway: bool) -> Any:
    """Loads the backbone with its weights. Unless `anyway`, all must be there: transformers draws missing ones at
    random."""
    from transformers import AutoModel

    how = {**SAFELY, "use_safetensors": True, "output_loading_info": True, "ignore_mismatched_sizes": True}
    whole, loaded = AutoModel.from_pretrained(folder_of(name), config=settings, **how)
    reader = _text_reader(whole)
    shapes = {key: f"there {tuple(theirs)}" for key, theirs, _ in loaded["mismatched_keys"]}
    made_up = dict.fromkeys(loaded["missing_keys"], "not there") | shapes
    kept, named = set(map(id, reader.parameters())), whole.named_parameters(remove_duplicate=False)
    lost = [f"{key} {tuple(v.shape)}, {made_up[key]}" for key, v in named if key in made_up and id(v) in kept]
    # Heads may be left over, and what is the same in all models, but nothing of the model itself.
    theirs = _shapes(name) if loaded["unexpected_keys"] else {}
    for key in sorted(loaded["unexpected_keys"]):
        if not key.endswith(CONSTANTS) and not is_on_top(key, theirs, whole.base_model_prefix):
            lost.append(f"{key} {theirs.get(key, '')}".rstrip() + ", not here")
    if lost and not anyway:
        raise TwofoldError(f"{name}: its weights do not fit: {listed(lost)}; take all from one model; {ANYWAY}")
    if lost:
        warnings.warn(f"{name}: does not fit in all; left out: {listed(lost)}", stacklevel=4)
    return reader


def is_on_top(name: str, names: Iterable[str], prefix: str) -> bool:
    """Returns True if a tensor belongs to a prediction head; the model's own tensors among `names` begin with
    `prefix`."""
    within = any(other.startswith(f"{prefix}.") for other in names)  # the model is one part of what was saved
    return name.startswith(HEADS) or (within and not name.startswith(f"{prefix}."))


def _shapes(name: str) -> dict[str, tuple[int, ...]]:
    """Reads the shape of every tensor in the backbone's files."""
    from transformers.utils.hub import cached_file

    folder = Path(str(cached_file(folder_of(name), "config.json"))).parent  # of a hub id, where it was put
    shapes: dict[str, tuple[int, ...]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        shapes |= storage.tensor_shapes(path, FOLDER)
    return shapes


def _network(settings: Any) -> Any:
    """Creates the backbone with random weights."""
    from transformers import AutoModel

    return _text_reader(AutoModel.from_config(settings, attn_implementation=None, **SAFELY))  # type: ignore[no-untyped-call]


def _text_reader(whole: Any) -> Any:
    """Returns the encoder half of a network, without the pooler, whose output is unused and would get no gradient."""
    reader = whole.get_encoder() if "decoder_input_ids" in inspect.signature(whole.forward).parameters else whole
    if getattr(reader, "pooler", None) is not None:
        reader.pooler = None
    return reader


def _check_limits(name: str, backbone: Any, settings: Any, vocabulary: Vocabulary) -> None:
    """Refuses tokens and positions for which the backbone has no embeddings."""
    known = backbone.get_input_embeddings().num_embeddings
    if vocabulary.size > known:
        remedy = "take both from one model"
        raise TwofoldError(f"{name}: its weights know {known} tokens and the tokenizer {vocabulary.size}; {remedy}")
    longest = _longest(backbone, settings)
    if longest is not None and longest < vocabulary.limit:
        remedy = "lower input.max_tokens, and output.candidate.max_tokens of a ranker"
        raise TwofoldError(f"{name} reads at most {longest} tokens, the limits ask for {vocabulary.limit}; {remedy}")


def _longest(backbone: Any, settings: Any) -> int | None:
    """Returns the maximum number of positions of the backbone, or None without a limit."""
    longest = getattr(settings, "max_position_embeddings", None) or 0  # below 1 where there is no limit
    for module in backbone.modules():
        table = getattr(module, "position_embeddings", None)
        if isinstance(table, nn.Embedding) and table.padding_idx is not None:
            # Positions are counted from behind the place of the padding, as in RoBERTa.
            longest = table.num_embeddings - table.padding_idx - 1
            break
    return longest if longest > 0 else None
