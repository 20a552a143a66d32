"""Exit codes and the sentence on stderr for every kind of failure."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from fedul.cli import app as module
from fedul.errors import EnvironmentFailure, InputError


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    handlers = {number: signal.getsignal(number) for number in module.STOP_SIGNALS}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


def run_main(monkeypatch: pytest.MonkeyPatch, failure: BaseException, *words: str) -> int:
    def fail(**_: object) -> None:
        raise failure

    monkeypatch.setattr("fedul.cli.commands.app", fail)
    monkeypatch.setattr("sys.argv", ["fedul", *words])
    with pytest.raises(SystemExit) as exit:
        module.main()
    return int(exit.value.code or 0)


@pytest.mark.parametrize(
    ("failure", "code", "sentence"),
    [
        (InputError("rounds: must be at least 1."), 2, "rounds: must be at least 1."),
        (EnvironmentFailure("the mirror\ndoes not answer."), 1, "the mirror does not answer."),
        (
            OSError(28, "No space left on device", "x.csv"),
            1,
            "x.csv: No space left on device; mend this and try again.",
        ),
        (RuntimeError("boom\nmore"), 1, "internal error (RuntimeError: boom); set FEDUL_DEBUG=1 for a traceback"),
        (KeyboardInterrupt(), 130, "stopped; the command did not finish."),
        (module.Terminated(signal.SIGTERM), 143, "stopped; the command did not finish."),
    ],
)
def test_a_failure_is_one_sentence_and_an_exit_code(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    failure: BaseException,
    code: int,
    sentence: str,
) -> None:
    assert run_main(monkeypatch, failure) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"fedul: {sentence}")
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        ("train", "repeat the command with --resume to continue."),
        ("compare", "repeat the command with --resume to continue."),
        ("evaluate", "the same command continues where it stopped."),
        ("predict", "no file was written."),
    ],
)
def test_a_stopped_command_says_how_to_continue(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str, advice: str
) -> None:
    assert run_main(monkeypatch, KeyboardInterrupt(), command) == 130
    assert capsys.readouterr().err == f"fedul: stopped; {advice}\n"


def test_a_traceback_is_printed_if_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FEDUL_DEBUG", "1")
    assert run_main(monkeypatch, RuntimeError("boom")) == 1
    assert "Traceback" in capsys.readouterr().err
