"""Cut the bundled sample from Mooncake's conversation trace.

    python make_sample.py conversation_trace.jsonl > conversation_sample.jsonl

The cut: of the requests that arrive in the first 270 seconds, every conversation that has at least two
of them there. The lines are copied as they are. A conversation is told by its first two hash ids: the
first block of all requests is one common preamble, the second belongs to the conversation.

A plain window of as many requests would hold few second turns, and so hardly any prefix to share.
"""

import json
import sys
from collections import Counter
from pathlib import Path

MAX_TIMESTAMP = 270_000
"""Milliseconds; requests that arrive before."""
LEAST_TURNS = 2
"""Requests of a conversation within that time."""


def cut(lines: list[str]) -> list[str]:
    """Choose the lines of the sample, in their order."""
    early = [line for line in lines if json.loads(line)["timestamp"] < MAX_TIMESTAMP]
    conversations = [tuple(json.loads(line)["hash_ids"][:2]) for line in early]
    turns = Counter(conversations)
    return [
        line
        for line, conversation in zip(early, conversations, strict=True)
        if turns[conversation] >= LEAST_TURNS
    ]


if __name__ == "__main__":
    text = Path(sys.argv[1]).read_text(encoding="utf-8")
    sys.stdout.writelines(cut(text.splitlines(keepends=True)))
