"""Reads the values in the commands of a scenario."""

import re

from kvsched_fp import AutomatonGrammar, LoRA, RepetitionDetection

_RANGE = re.compile(r"(\d+)-(\d+):(\d+)")


class CommandError(Exception):
    """A command that makes no sense."""


def only(words: tuple[str, ...]) -> str:
    """Read the one word that stands behind a command."""
    if len(words) != 1:
        raise CommandError(f"one argument wanted, got {' '.join(words) or 'none'}")
    return words[0]


def config_value(text: str) -> object:
    """Read a config value as a file would give it; `1-2:3,4-8:1` are ranges of batch sizes."""
    words: dict[str, object] = {"true": True, "false": False, "none": None}
    if text in words:
        return words[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    ranges = [_RANGE.fullmatch(part) for part in text.split(",")]
    if all(ranges):
        return [tuple(map(int, found.groups())) for found in ranges if found]
    return text


def yes(text: str) -> bool:
    """Read `yes` or `no`."""
    if text not in {"yes", "no"}:
        raise CommandError(f"yes or no wanted, got {text}")
    return text == "yes"


def integer(text: str | None) -> int | None:
    """Read an integer, or nothing."""
    return None if text is None else int(text)


def integers(text: str) -> tuple[int, ...]:
    """Read integers; `-` alone stands for none, and `_` for -1."""
    parts = [part for part in text.split(",") if part not in {"", "-"}]
    return tuple(-1 if part == "_" else int(part) for part in parts)


def repetition(text: str | None) -> RepetitionDetection | None:
    """Read MAX:COUNT."""
    if text is None:
        return None
    longest, _, count = text.partition(":")
    return RepetitionDetection(max_pattern_size=int(longest), min_count=int(count))


def lora(text: str | None) -> LoRA | None:
    """Read NAME:ID."""
    if text is None:
        return None
    name, _, lora_id = text.partition(":")
    return LoRA(name, int(lora_id))


def grammar(options: dict[str, str]) -> AutomatonGrammar:
    """Read `allows=7,8` (those tokens, as often as one likes) or `then=7,8` (those, in this order)."""
    if "allows" in options:
        return AutomatonGrammar([[(token_id, 0) for token_id in sorted(integers(options.pop("allows")))]])
    sequence = integers(options.pop("then"))
    return AutomatonGrammar([*[[(token_id, state)] for state, token_id in enumerate(sequence, 1)], []])
