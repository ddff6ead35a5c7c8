"""The format of scenario files, and what is a mistake in one."""

from pathlib import Path

import pytest

from kvsched_fp.ids import RequestId
from tests.scenarios.language import Command, ScenarioError, format_scenario, parse_scenario
from tests.scenarios.reading import CommandError
from tests.scenarios.session import Session
from tests.scenarios.test_scenarios import run_scenario

TEXT = """\
# why
config num_blocks=17

# more
add a prompt=4
schedule
----
step 1
second line

show queues
----
"""


def write(folder: Path, text: str) -> Path:
    """Write a scenario file."""
    path = folder / "x.txt"
    path.write_text(text, encoding="utf-8")
    return path


def test_blocks_are_commands_and_what_they_print(tmp_path: Path) -> None:
    """Comments and blank lines before the separator belong to the block; a blank line ends it."""
    first, second = parse_scenario(write(tmp_path, TEXT))

    assert ["config", "add", "schedule"] == [command.name for command in first.commands]
    assert Command("add", ("a",), {"prompt": "4"}) == first.commands[1]
    assert (1, "step 1\nsecond line") == (first.line, first.expected)
    assert (10, "") == (second.line, second.expected)


def test_file_is_written_as_it_was_read(tmp_path: Path) -> None:
    """With the expected parts as they were, the text is the same, comments included."""
    blocks = parse_scenario(write(tmp_path, TEXT))

    assert TEXT == format_scenario(blocks, [block.expected for block in blocks])


def test_rewritten_file_says_what_was_printed(tmp_path: Path) -> None:
    """Running the rewritten file prints what it says."""
    path = write(tmp_path, TEXT)
    blocks = parse_scenario(path)
    path.write_text(format_scenario(blocks, run_scenario(path, blocks)), encoding="utf-8")
    again = parse_scenario(path)

    assert [block.expected for block in again] == run_scenario(path, again)
    assert "running a | waiting -" == again[1].expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("config\n", "x.txt:1: lines without ---- behind them"),
        ("config\n----\n\n# the end\n", "x.txt:4: lines without"),
        ("# nothing\n----\n", "x.txt:1: no command"),
    ],
)
def test_file_that_is_no_scenario_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    """The error says where."""
    with pytest.raises(ScenarioError, match=problem):
        parse_scenario(write(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("add a prompt=4", "no config yet"),
        ("config\nfly", "unknown command 'fly'"),
        ("config\nadd a prompt=4 colour=red", "unknown option 'colour' of add"),
        ("config\nadd a b prompt=4", "one argument wanted"),
        ("config\nadd a", "prompt"),
        ("config\nschedule now", "schedule takes nothing, or throttle"),
        ("config\nreset all", "reset takes nothing, or running"),
        ("config\nshow everything", "nothing to show: everything"),
        ("config\nshow output", "no step yet"),
        ("config\npause off on", "one argument wanted"),
        ("config\nupdate a", "update takes"),
        ("config\ndrafts a", "drafts takes"),
        ("config\nadd a prompt=4 session=maybe", "yes or no wanted, got maybe"),
        ("config\nadd a prompt=4 lora=red", "invalid literal"),
        ("config\nend a b", "one argument wanted"),
        ("config\ninput a prompt=4", "a"),
        ("config\ngrammar a", "then"),
        ("config\nshow mask", "no step yet"),
    ],
)
def test_command_that_makes_no_sense_is_a_mistake_in_the_file(
    tmp_path: Path, text: str, problem: str
) -> None:
    """It is no expectation: `--rewrite` cannot write it down."""
    path = write(tmp_path, f"# x\n{text}\n----\n")
    with pytest.raises(ScenarioError, match=f"x.txt:1: .*{problem}"):
        run_scenario(path, parse_scenario(path))


def test_refused_input_is_printed_and_changes_nothing() -> None:
    """What the scheduler refuses is part of a scenario."""
    session = Session()
    session.run(Command("config", (), {}))
    before = session.state

    assert "error: step_id: got 0; allowed: nothing: no step is in flight" == session.run(
        Command("update", (), {})
    )
    assert before is session.state


def test_tokens_say_where_they_come_from() -> None:
    """Position p of the k-th request is token 1000 k + p, of the k-th shared text 1000000 k + p."""
    session = Session()
    session.run(Command("config", (), {}))
    session.run(Command("add", ("a",), {"prompt": "2"}))
    session.run(Command("add", ("b",), {"prompt": "3", "prefix": "sys:2"}))
    session.run(Command("add", ("c",), {"prompt": "2", "prefix": "doc:1"}))

    assert [(1000, 1001), (1000000, 1000001, 2002), (2000000, 3001)] == [
        session.state.requests[request_id].prompt_token_ids for request_id in session.state.waiting
    ]


def test_world_must_be_there_before_anything_else() -> None:
    """Without `config` there is no state."""
    with pytest.raises(CommandError, match="no config yet"):
        _ = Session().state


def sampled(session: Session, text: str) -> str:
    """Run the last of some commands, and give what it prints."""
    *before, last = text.splitlines()
    for line in [*before, last]:
        printed = session.run(_command(line))
    return printed


def _command(line: str) -> Command:
    name, *arguments = line.split()
    options = dict(argument.split("=", 1) for argument in arguments if "=" in argument)
    return Command(name, tuple(argument for argument in arguments if "=" not in argument), options)


def test_drafts_can_be_accepted_by_their_number() -> None:
    """Those drafts, and the token that stands behind them; where nobody told a draft, the next tokens."""
    known = "config num_spec_tokens=3\nadd a prompt=2\nstep 1\ndrafts a=50,51,52\nschedule\nupdate a=+2"
    unknown = (
        "config num_spec_tokens=3 async_scheduling=true\nadd a prompt=2\nschedule\nschedule\nupdate\n"
        "update a=+2"
    )

    assert "a=50,51,1005" == sampled(Session(), known)
    assert "a=1003,1004,1005" == sampled(Session(), unknown)


def test_session_keeps_its_number() -> None:
    """What it samples after an input is told from its first one; the input has a number of its own."""
    session = Session()
    printed = sampled(
        session,
        "config\nadd a prompt=2 session=yes max_tokens=1\nstep 1\n"
        "input a prompt=2 max_tokens=1\nschedule\nupdate",
    )

    assert "a=1004 (length)" == printed
    assert (1000, 1001, 2000, 2001) == session.state.requests[RequestId("a")].prompt_token_ids
