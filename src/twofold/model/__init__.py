"""An encoder, then one or several decoders; or one or two towers and a ranking decoder."""

from twofold.model.candidates import Candidates
from twofold.model.config import DecoderSlot, ModelConfig, RankerConfig, RankingLoss
from twofold.model.learner import Learner
from twofold.model.model import Model
from twofold.model.ranker import Ranker

__all__ = ["Candidates", "DecoderSlot", "Learner", "Model", "ModelConfig", "Ranker", "RankerConfig", "RankingLoss"]
