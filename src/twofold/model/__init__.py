"""Models: an input, an encoder, and decoders with their outputs; rankers score candidates."""

from twofold.model.candidates import Candidates
from twofold.model.config import ModelConfig, Task
from twofold.model.model import Model
from twofold.model.ranker import Ranker

__all__ = ["Candidates", "Model", "ModelConfig", "Ranker", "Task"]
