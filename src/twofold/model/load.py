"""Loading of models by folder, by hub id, or by the name of a named model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from torch import Tensor, nn

from twofold import storage
from twofold.config import Role, part_config, structure
from twofold.data.named_models import MODELS, RECORD, folder_of
from twofold.data.tokenizer import TextTokenizer
from twofold.encoders import EncoderConfig
from twofold.errors import TwofoldError, listed
from twofold.inputs import INPUT
from twofold.inputs.text import Config as TextInput
from twofold.inputs.text import Tokens
from twofold.model import cross_encoders, saved, sentences
from twofold.model.config import MAIN, ModelConfig, Task, within_positions
from twofold.model.model import Model
from twofold.model.ranker import Ranker
from twofold.model.sentence_misfits import POOLINGS, check_widths, misfits_of
from twofold.model.starting import Start, Weights, saved_start
from twofold.outputs.ranking import Config as RankingOutput

ALONE = "a recipe takes its network alone: encoder: {kind: pretrained, name: ...}"
LONGEST = 256
"""Maximum number of tokens for backbones that do not state their own."""
CONTEXT = TextInput(column="context", max_tokens=LONGEST, keep="tail")
CANDIDATE = TextInput(column="response", max_tokens=LONGEST)


def load(name: str | Path, allow_code: bool = False) -> Model:
    """Loads a folder that a training or `save_pretrained` wrote, or a backbone as a zero-shot ranker."""
    folder = Path(name)
    try:
        folder.exists()
    except (OSError, ValueError) as error:  # a name that no folder can have
        raise TwofoldError(f"{name}: no such model ({getattr(error, 'strerror', None) or error})") from None
    if is_backbone_name(str(name)):
        return zero_shot(str(name))
    read = saved.read(folder, allow_code)
    return (Ranker if read.config.ranks else Model).from_saved(read)


def is_backbone_name(name: str) -> bool:
    """Returns True for a named model, a backbone's folder, and a hub id."""
    folder = Path(name)
    if name in MODELS or saved.is_backbone(folder) or (folder / sentences.MODULES).is_file():
        return True
    on_hub = name.count("/") == 1 and not folder.is_absolute() and not name.startswith(".")
    return on_hub and not folder.exists() and not folder.parent.is_dir()  # a typing error in runs/... is no owner/name


def read_start(name: str | Path) -> Start:
    """Returns the model of a name or folder, to start a training from its weights."""
    if not starts_as_backbone(name):
        return saved_start(name)
    folder = Path(folder_of(str(name)))
    record = next(file for file in (folder / RECORD, *sorted(folder.glob("*.safetensors")), folder) if file.exists())

    def weights() -> Weights:
        model = zero_shot(str(name))
        return Weights(saved.unique_tensors(model), tuple(task.decoder for task in model.config.tasks.values()))

    return Start(folder, record, lambda: encoder_named(str(name)).own_tokenizer(), weights)


def encoder_named(name: str) -> EncoderConfig:
    """Returns the settings of the encoder that reads the weights of a named model or a backbone's folder."""
    settings = MODELS[name].encoder if name in MODELS else {"kind": "pretrained", "name": name}
    return structure(settings, EncoderConfig)


def starts_as_backbone(name: str | Path) -> bool:
    """Returns True for a named model and for a backbone's folder; hub ids have nothing that tells a change."""
    return str(name) in MODELS or (is_backbone_name(str(name)) and Path(name).is_dir())


def load_ranker(name: str | Path, allow_code: bool = False) -> Ranker:
    """Loads a ranker; any other model is an error."""
    model = load(name, allow_code)
    if not isinstance(model, Ranker):
        raise TwofoldError(f"{name}: does not rank candidates; give a bi-, poly- or cross-encoder, or `default`")
    return model


def zero_shot(name: str) -> Ranker:
    """Builds a ranker without training: a bi-encoder pooled as its backbone was trained, or a cross-encoder."""
    if name in MODELS and "weights" in MODELS[name].encoder:
        return _of_own_encoder(name)
    folder = folder_of(name)
    backbone = sentences.read_sentence_folder(folder)
    if (backbone is None or backbone.pooling is None) and (classifier := cross_encoders.read_classifier(folder)):
        return cross_encoders.cross_encoder(name, folder, classifier)
    if backbone is None:  # a backbone of transformers, which says nothing of sentences
        return _bi_encoder(_part("encoders", "pretrained", name=name), {"pooling": "mean"})
    return _of_sentences(name, folder, backbone)


def _of_own_encoder(name: str) -> Ranker:
    """Builds the bi-encoder of weights that an encoder of ours reads."""
    encoder = encoder_named(name)
    if not issubclass(Tokens, encoder.reads):
        raise TwofoldError(f"{name}: weights of an encoder, and no model by itself; train one: encoder={name}")
    return _bi_encoder(encoder, {"pooling": "summary"})


def _of_sentences(name: str, folder: str, backbone: sentences.SentenceFolder) -> Ranker:
    """Builds the bi-encoder whose vectors and scores equal those of sentence-transformers."""
    if misfits := misfits_of(backbone):
        raise TwofoldError(f"{name}: cannot be read as sentence-transformers does ({misfits[0]}); {ALONE}")
    inner, dense = backbone.network.path, backbone.of_kind("Dense")
    if inner and not Path(folder).is_dir():
        raise TwofoldError(f"{name}: its network is in {inner}; download it and run `twofold import` on its folder")
    encoder = _part("encoders", "pretrained", name=str(Path(name, inner)) if inner else name).settled()
    pooling = POOLINGS[sentences.modes_of(backbone.of_kind("Pooling")[0].about)[0]]
    if pooling == "first" and encoder.spec().causal:
        raise TwofoldError(f"{name}: Pooling by cls of a causal network, whose first token sees no other; {ALONE}")
    check_widths(name, backbone, encoder.spec().width("states"))
    weights = [_dense_weights(name, folder, module) for module in dense]
    unit = bool(backbone.of_kind("Normalize"))
    decoder = {
        "pooling": pooling,
        "dense": tuple(module.dense() for module in dense),
        "normalize": "both" if unit else "none",
        "similarity": "dot" if unit or backbone.about.get("similarity_fn_name") == "dot" else "cosine",
    }
    query, document = backbone.prompt(sentences.QUERY), backbone.prompt(sentences.DOCUMENT)
    context = replace(CONTEXT, max_tokens=backbone.limit, keep="turns", prompt=query)
    candidate = replace(CANDIDATE, max_tokens=backbone.limit, prompt=document)
    tokenizer = encoder.own_tokenizer(start=False, lowercase=bool(backbone.network.about.get("do_lower_case")))
    for prompt in (query, document):
        if token := tokenizer.special_in(prompt):
            raise TwofoldError(f"{name}: its prompt {prompt!r} holds the special token {token}; {ALONE}")
    model = _bi_encoder(encoder, decoder, context, candidate, tokenizer)
    linear = [module for module in cast(Any, model.head).dense if isinstance(module, nn.Linear)]
    for layer, tensors in zip(linear, weights, strict=True):
        layer.load_state_dict({key.removeprefix("linear."): value for key, value in tensors.items()})
    return model


def _bi_encoder(
    encoder: EncoderConfig,
    decoder: Mapping[str, Any],
    context: TextInput = CONTEXT,
    candidate: TextInput = CANDIDATE,
    tokenizer: TextTokenizer | None = None,
) -> Ranker:
    """Builds a ranker from the encoder's pre-trained weights and a decoder without weights."""
    encoder = encoder.settled()
    task = Task(_part("decoders", "bi", scale=1.0, learn_scale=False, **decoder), RankingOutput(candidate=candidate))
    tokenizer = tokenizer or encoder.own_tokenizer()
    assert tokenizer is not None
    config = within_positions(ModelConfig(context, encoder, {MAIN: task}), tokenizer.frame)
    model = Ranker(config, {INPUT: tokenizer})
    model.start_from()
    return model.eval()


def _part(role: Role, kind: str, **settings: Any) -> Any:
    config: Any = part_config(role, kind)
    return config(**settings)


def _dense_weights(name: str, folder: str, module: sentences.Module) -> dict[str, Tensor]:
    """Reads the tensors of a dense layer; refuses tensors that its settings do not describe."""
    file, pickled = module.file(saved.WEIGHTS), module.file("pytorch_model.bin")
    path = sentences.file_of(folder, file)
    if path is None:
        unread = " (pytorch_model.bin is never read)" if sentences.file_of(folder, pickled, rare=True) else ""
        raise TwofoldError(f"{name}: has no {file}{unread}; `twofold import` writes it, or save it as safetensors")
    settings = module.dense()
    shapes: dict[str, tuple[int, ...]] = {"linear.weight": (settings.width, module.about["in_features"])}
    shapes |= {"linear.bias": (settings.width,)} if settings.bias else {}
    given = storage.tensor_shapes(path, sentences.AGAIN)
    if given != shapes:
        raise TwofoldError(
            f"{path}: holds {_shown(given)}, and its config.json says {_shown(shapes)}; {sentences.AGAIN}"
        )
    return storage.read_tensors(path, sentences.AGAIN)


def _shown(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return listed([f"{name} {shape}" for name, shape in sorted(shapes.items())]) or "nothing"
