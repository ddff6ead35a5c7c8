"""The specification and the code say the same."""

import re
from pathlib import Path

import pytest

from kvsched_fp.trace import check_trace, open_trace_reader
from tests.meta.example_trace import EVENTS, parse_trace
from tests.meta.pages import PAGE_OF_PREFIX, pages, prefix_of, render_page
from tests.meta.rules import PACKAGE, ROOT, RULE_ID, SPECS, read_implementers, read_rules

_PATH = re.compile(r"`((?:kvsched_fp|tests|specs)/[\w/.-]+\.(?:py|md|sh|json|txt))(?:::([\w.]+))?`")


def test_every_rule_is_stated_once() -> None:
    """No two modules state a rule of one id."""
    ids = [rule.rule_id for rule in read_rules()]

    assert sorted(set(ids)) == sorted(ids)


def test_every_rule_has_code() -> None:
    """Each rule is named by at least one function or class that implements it."""
    implemented = read_implementers()

    assert [rule.rule_id for rule in read_rules() if rule.rule_id not in implemented] == []


def test_every_id_in_the_code_is_a_rule() -> None:
    """No comment or docstring names a rule that is not stated."""
    stated = {rule.rule_id for rule in read_rules()}
    named = {rule_id for path in PACKAGE.rglob("*.py") for rule_id in RULE_ID.findall(path.read_text())}

    assert sorted(named - stated) == []


def test_every_id_in_the_pages_is_known() -> None:
    """No page names a rule that is not stated."""
    stated = {rule.rule_id for rule in read_rules()}
    named = {rule_id for page in pages() for rule_id in RULE_ID.findall(page.read_text())}

    assert sorted(named - stated) == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_generated_sections_are_current(page: Path) -> None:
    """A page repeats the code word for word (else: python -m tests.meta.write_specs)."""
    expected = render_page(page)

    assert expected == page.read_text()


@pytest.mark.parametrize(("prefix", "page"), PAGE_OF_PREFIX.items())
def test_every_kind_of_rule_has_its_page(prefix: str, page: str) -> None:
    """Each page of rules prints all the rules of its prefix, and there are some."""
    text = (SPECS / page).read_text()
    rule_ids = [rule.rule_id for rule in read_rules() if prefix_of(rule.rule_id) == prefix]

    assert rule_ids
    assert [rule_id for rule_id in rule_ids if f"**{rule_id}**" not in text] == []


def test_the_example_of_a_trace_is_one(tmp_path: Path) -> None:
    """What the page shows can be copied into a file, and is what this package does."""
    path = tmp_path / "t.jsonl"
    path.write_text(parse_trace((SPECS / "trace-format.md").read_text()))
    with open_trace_reader(path) as reader:
        verdict = check_trace(reader)

    assert (len(EVENTS), None) == (verdict.num_events, verdict.divergence)


def test_every_path_in_the_pages_exists() -> None:
    """A file that a page or the README names is there, and so is a function named behind it."""
    missing = []
    for page in [*pages(), ROOT / "README.md"]:
        for path, name in _PATH.findall(page.read_text()):
            file = ROOT / path
            word = name.rpartition(".")[2]
            if not file.is_file() or (word and not re.search(rf"\b{word}\b", file.read_text())):
                missing.append(f"{page.name}: {path} {name}")

    assert missing == []


def test_every_page_is_in_the_index() -> None:
    """The index names every page."""
    index = (SPECS / "README.md").read_text()
    missing = [page.name for page in pages() if page.name != "README.md" and page.name not in index]

    assert missing == []


def test_every_rule_is_named_by_a_test() -> None:
    """Each rule stands in a test or a scenario."""
    files = [path for kind in ("*.py", "*.txt") for path in (ROOT / "tests").rglob(kind)]
    named = {rule_id for path in files for rule_id in RULE_ID.findall(path.read_text())}

    assert [rule.rule_id for rule in read_rules() if rule.rule_id not in named] == []
