"""Which kind of histories: the shape of the output, and whether the engine has features."""

from random import Random

import attrs

from kvsched_fp import SchedulerConfig, SchedulerState
from kvsched_fp.kvcache.hashing import BlockHasher

from .histories import History
from .random_configs import OutputShape, draw_config
from .random_features import draw_features, with_features


@attrs.frozen
class Drawn:
    """What the seed of a history gives before anything has happened."""

    config: SchedulerConfig
    features: frozenset[str]
    """What the engine does besides."""
    rng: Random
    features_rng: Random

    def history(self, state: SchedulerState) -> History:
        """Begin the history; once only, since it draws on."""
        return History(self.rng, state, self.features, self.features_rng)


@attrs.frozen
class Kind:
    """A kind of histories; with the seed, it gives one."""

    shape: OutputShape = "both"
    has_features: bool = False

    def draw(self, seed: int, hasher: BlockHasher) -> Drawn:
        """Draw what the history begins with."""
        rng = Random(seed)
        features_rng = Random(f"features of {seed}")  # so that histories without any stay what they were
        features = draw_features(features_rng) if self.has_features else frozenset()
        config = draw_config(rng, hasher, self.shape)
        if self.has_features:
            config = with_features(features_rng, config, features)
        return Drawn(config, features, rng, features_rng)

    def __str__(self) -> str:
        return f"{self.shape}-features" if self.has_features else self.shape


PLAIN = Kind()
"""Both shapes, no features."""
FEATURED = Kind(has_features=True)
"""Both shapes, with features."""
