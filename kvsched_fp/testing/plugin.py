"""The pytest plugin: a ready test of a scheduler, from the command line.

    pytest --kvsched-adapter my_package.my_tests:MyAdapter
    pytest --kvsched-command "./my_scheduler --some-option"

With no other arguments, nothing else is collected. pytest imports this file wherever the package is
installed, as `kvsched_fp_pytest`; so it imports nothing of the package before it has something to test.
"""

import importlib
import inspect
import sys
from collections.abc import Generator, Iterator
from typing import Any

import pytest

_OPTIONS = {"--kvsched-adapter": "MODULE:NAME", "--kvsched-command": "a program, and its arguments"}
"""The two ways to name a scheduler, and what each takes."""

_NODE_ID = "kvsched-fp"
"""What the test is called where it is listed; `-k` knows it by that, too."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("kvsched-fp", "test a scheduler against kvsched-fp")
    group.addoption(
        "--kvsched-adapter",
        metavar="MODULE:NAME",
        help="an Adapter of kvsched_fp.testing, or what makes one when it is called",
    )
    group.addoption(
        "--kvsched-command",
        metavar="COMMAND",
        help="a program that speaks the protocol of specs/subprocess-protocol.md",
    )
    group.addoption(
        "--kvsched-trace-dir",
        metavar="DIR",
        default=".kvsched-fp",
        help="where the trace of a difference goes (%(default)s)",
    )
    group.addoption(
        "--kvsched-profile",
        metavar="NAME",
        default="ci",
        help="how long to search: quick, ci or deep (%(default)s)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Leave everything else out, unless it is named."""
    given = [option for option in _OPTIONS if config.getoption(option) is not None]
    if len(given) > 1:
        raise pytest.UsageError(f"{' and '.join(given)}: only one of them")
    value = config.getoption(given[0]) if given else ""
    if given and not value.strip():  # an unset variable of a shell
        raise pytest.UsageError(f"{given[0]}: got {value!r}; allowed: {_OPTIONS[given[0]]}")
    if given and config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args = []


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Add the test to what the session collects: it is counted, selected and listed as any other."""
    report = yield
    config = collector.config
    is_asked = any(config.getoption(option) is not None for option in _OPTIONS)
    if is_asked and isinstance(collector, pytest.Session):
        item = SchedulerItem.from_parent(collector, name="scheduler", nodeid=_NODE_ID)
        item.extra_keyword_matches.add(_NODE_ID)
        report.result.insert(0, item)
    return report


class SchedulerItem(pytest.Item):
    """The test of the scheduler that the command line names."""

    machine: Any = None

    def runtest(self) -> None:
        """Search for a difference."""
        checking = importlib.import_module("kvsched_fp.testing.checking")
        adapter = self._make_adapter()
        profile = self.config.getoption("--kvsched-profile")
        try:
            self.machine = checking.scheduler_machine(
                adapter, profile=profile, trace_dir=self.config.getoption("--kvsched-trace-dir")
            )
            checking.run_machine(self.machine, profile)
        finally:
            adapter.close()
            if self.machine is not None:
                self.add_report_section("call", "kvsched-fp", str(self.machine.tally))

    def _make_adapter(self) -> Any:
        command = self.config.getoption("--kvsched-command")
        if command is not None:
            kinds = importlib.import_module("kvsched_fp.testing.subprocess_adapter")
            return kinds.SubprocessAdapter(command)
        return load_adapter(self.config.getoption("--kvsched-adapter"), self.config)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Tell the story of a difference, and no traceback of ours."""
        errors = importlib.import_module("kvsched_fp.errors")
        story = getattr(excinfo.value, "story", None)
        if story is not None or isinstance(excinfo.value, errors.KvschedError | pytest.UsageError):
            return story or str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Any, int | None, str]:
        """Name the test."""
        return self.name, None, self.name


def load_adapter(name: str, config: pytest.Config) -> Any:
    """Find the adapter MODULE:NAME. Raises `UsageError` if there is none."""
    kinds = importlib.import_module("kvsched_fp.testing.adapter")
    module, colon, attribute = name.partition(":")
    if not colon:
        raise pytest.UsageError(f"--kvsched-adapter: got {name!r}; allowed: MODULE:NAME")
    directory = str(config.invocation_params.dir)
    if directory not in sys.path:
        sys.path.insert(0, directory)  # as `python -m pytest` does
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise pytest.UsageError(
            f"--kvsched-adapter: got {name!r}; allowed: MODULE:NAME; {error}"
        ) from error
    if why := _why_not_called(found, kinds.Adapter):
        raise _no_adapter(name, why)
    adapter = found if isinstance(found, kinds.Adapter) else found() if callable(found) else found
    if not isinstance(adapter, kinds.Adapter):
        raise _no_adapter(name, f"is {adapter!r}" if adapter is found else f"gives {adapter!r}")
    return adapter


def _why_not_called(found: Any, adapter_class: type[Any]) -> str | None:
    """Say why `found` makes no adapter, as far as shows before it is called; None if nothing does."""
    if isinstance(found, adapter_class) or not callable(found):
        return None
    if isinstance(found, type) and not issubclass(found, adapter_class):
        return f"is {found!r}"
    if inspect.isabstract(found):
        return f"lacks {', '.join(sorted(found.__abstractmethods__))}"
    try:
        inspect.signature(found).bind()
    except ValueError:  # it does not tell its parameters
        return None
    except TypeError as error:
        return f"cannot be called without arguments: {error}"
    return None


def _no_adapter(name: str, why: str) -> pytest.UsageError:
    allowed = "an Adapter of kvsched_fp.testing, or what makes one"
    return pytest.UsageError(f"--kvsched-adapter: {name} {why}; allowed: {allowed}")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say what was compared."""
    for line in _summary(terminalreporter):
        terminalreporter.write_line(line)


def _summary(terminalreporter: Any) -> Iterator[str]:
    for report in terminalreporter.stats.get("passed", ()):
        for title, text in report.sections:
            if title == "Captured kvsched-fp call":
                yield f"kvsched-fp: {text}"
