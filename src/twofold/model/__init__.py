"""An encoder, then one or several decoders."""

from twofold.model.config import DecoderSlot, ModelConfig
from twofold.model.model import Model

__all__ = ["DecoderSlot", "Model", "ModelConfig"]
