"""Strategies for configurations, requests and events: small worlds in which much happens.

worlds(features), configs(features)      a configuration, and the world around it
wishes(), asked()                        requests; `World.make_request` makes them fit the world
Outside(world).events(state)             any event that makes sense in a state
plays(), answers()                       some steps in a row, and what the model says
"""

from kvsched_fp.testing.strategies.events import Outside
from kvsched_fp.testing.strategies.plays import Play, answers, plays
from kvsched_fp.testing.strategies.wishes import Wish, asked, wishes
from kvsched_fp.testing.strategies.worlds import World, configs, worlds

__all__ = ["Outside", "Play", "Wish", "World", "answers", "asked", "configs", "plays", "wishes", "worlds"]
