"""The features and the profiles of the kit, for `specs/testing.md`."""

import ast
from itertools import pairwise

from kvsched_fp.testing.features import Feature
from kvsched_fp.testing.profiles import PROFILES
from tests.meta.rules import PACKAGE


def render_features() -> str:
    """List the features by name, each with what it is."""
    lines = ["| name | what it is |", "|---|---|"]
    sentences = _read_sentences()
    lines += [f"| `{feature.value}` | {sentences[feature.name]} |" for feature in Feature]
    return "\n".join(lines) + "\n"


def render_profiles() -> str:
    """List the profiles by name."""
    lines = ["| profile | runs | rules per run | which runs |", "|---|---|---|---|"]
    for name, profile in PROFILES.items():
        which = "always the same ones" if profile.is_repeatable else "others each time"
        lines.append(f"| `{name}` | {profile.num_runs:,} | {profile.num_rules} | {which} |")
    return "\n".join(lines) + "\n"


def _read_sentences() -> dict[str, str]:
    """Read the text behind each member."""
    tree = ast.parse((PACKAGE / "testing" / "features.py").read_text())
    (members,) = (node.body for node in tree.body if isinstance(node, ast.ClassDef))
    return {
        member.targets[0].id: " ".join(sentence.value.value.split())
        for member, sentence in pairwise(members)
        if isinstance(member, ast.Assign)
        and isinstance(member.targets[0], ast.Name)
        and isinstance(sentence, ast.Expr)
        and isinstance(sentence.value, ast.Constant)
    }
