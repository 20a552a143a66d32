"""The process of a site: a SuperNode, and replies by the fedul that is installed here.

By default a SuperNode installs and executes the app of every run, so everyone who can start a run can execute code at
every site. Here the SuperNode only transports messages (`--isolation process`), and this process replies to them with
fedul's own code. The app that the coordinator sends is never unpacked, installed or executed, so there is no list of
allowed apps to maintain: which code runs at a site is decided by the operator who installs fedul.

Each message is replied to in a fork of this process, which forwards it to the worker process of the site. Everything
ends with this process, however it ends (on Linux; elsewhere if it is not killed).
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from fedul import __version__
from fedul._utils.processes import DeferredSignals, bound, end_with_parent
from fedul.engines.flower.identity.roster import SiteIdentity
from fedul.engines.flower.processes import HOST, QUIET, flower_program, free_port, is_listening
from fedul.engines.flower.settings import SiteConfig
from fedul.engines.flower.site.site_file import private_folder, read_site_settings
from fedul.engines.flower.site.start_check import check_data
from fedul.errors import EnvironmentFailure, InputError

POLL_SECONDS = 0.25
END_SECONDS = 10.0
"""Time in which a SuperNode says goodbye to the SuperLink before it is killed."""


def run_site(path: str) -> None:
    """Run a site until it is interrupted.

    Parameters
    ----------
    path : str
        Settings file of the site.

    Raises
    ------
    InputError
        If the settings, the key, the roster, the rows or the class priors cannot be used.
    EnvironmentFailure
        If the SuperNode ends, or the installed version of Flower is not known.
    """
    from fedul.engines.flower.site.runtime_api import TaskQueue, require_known_version

    require_known_version()
    os.environ.update(QUIET)
    config = _read_config(path)
    _say(f"site '{config.name}' has {check_data(path)}.")
    _say(f"site '{config.name}' connects to {config.superlink}.")
    port, secret = free_port(), secrets.token_bytes(32)
    with _running_supernode(_supernode_command(config, port), secret) as supernode:
        while supernode.poll() is None and not is_listening(port):
            _wait(supernode, POLL_SECONDS)
        _say(f"site '{config.name}' runs fedul {__version__}; apps that coordinators send are not executed.")
        with TaskQueue(port, secret) as queue:
            while supernode.poll() is None:
                if token := queue.acquire():
                    _reply_in_fork(supernode, port, token, path)
                else:
                    _wait(supernode, POLL_SECONDS)
    raise EnvironmentFailure(
        f"the SuperNode of site '{config.name}' ended (code {supernode.returncode}); its last lines above say why. "
        "Let a supervisor start the site again."
    )


def _read_config(path: str) -> SiteConfig:
    """Return the settings of a site, whose key and roster can be used."""
    config, _ = read_site_settings(path)
    for name in ("superlink", "key"):
        if getattr(config, name) is None:
            raise InputError(f"{path}: {name} is missing; the README of the federation says what it is.")
    if config.root_certificates:
        _check_certificates(config.root_certificates)
    SiteIdentity.read(config)
    if (state := Path(config.state)).exists():  # it is made when a coordinator sends the first message
        private_folder(state)
    return config


def _check_certificates(file: str) -> None:
    """Refuse a file without certificates: Flower would not end with it."""
    from cryptography.x509 import load_pem_x509_certificates

    try:
        load_pem_x509_certificates(Path(file).read_bytes())
    except FileNotFoundError:
        raise InputError(f"root-certificates: there is no file {file}; correct the path.") from None
    except OSError as problem:
        reason = problem.strerror or problem
        raise InputError(f"root-certificates: {file} cannot be read ({reason}); correct the path.") from None
    except ValueError:
        raise InputError(
            f"root-certificates: {file} is not a certificate in PEM format (BEGIN CERTIFICATE); name the ca.pem of the "
            "coordinator."
        ) from None


def _say(sentence: str) -> None:
    print(f"fedul: {sentence}", file=sys.stderr, flush=True)


def _supernode_command(config: SiteConfig, port: int) -> list[str]:
    """Return the command of the SuperNode; the secret's file is added when it is started."""
    certificates = ("--root-certificates", config.root_certificates) if config.root_certificates else ()
    return [
        str(flower_program("flower-supernode")),
        *("--superlink", str(config.superlink), *certificates),
        *("--auth-supernode-private-key", str(config.key)),
        *("--host", HOST, "--port", str(port), "--isolation", "process"),
    ]


@contextmanager
def _running_supernode(command: Sequence[str], secret: bytes) -> Iterator[subprocess.Popen[bytes]]:
    """Context with a SuperNode; it reads the secret from a pipe, so that it is in no file and no list of processes."""
    reading, writing = os.pipe()
    os.write(writing, secret)
    os.close(writing)
    supernode: subprocess.Popen[bytes] | None = None
    try:
        with DeferredSignals():
            supernode = subprocess.Popen(
                bound([*command, "--superexec-auth-secret-file", f"/dev/fd/{reading}"]),
                stdin=subprocess.DEVNULL,
                pass_fds=(reading,),
                start_new_session=True,  # Ctrl-C reaches this process only, which then ends the SuperNode
            )
        yield supernode
    finally:
        with DeferredSignals():  # a second Ctrl-C must not leave a process behind
            os.close(reading)
            if supernode is not None:
                _end(supernode)


def _end(supernode: subprocess.Popen[bytes]) -> None:
    supernode.terminate()
    try:
        supernode.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        supernode.kill()
        supernode.wait()


def _wait(supernode: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait, but not longer than the SuperNode runs."""
    with suppress(subprocess.TimeoutExpired):
        supernode.wait(seconds)


def _reply_in_fork(supernode: subprocess.Popen[bytes], port: int, token: str, path: str) -> None:
    """Reply to one message in another process, which is ended with the SuperNode."""
    context: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    process: BaseProcess | None = None
    try:
        with DeferredSignals():
            process = context.Process(target=_reply, args=(port, token, path, os.getpid()), daemon=True)
            process.start()
        while process.is_alive() and supernode.poll() is None:
            process.join(POLL_SECONDS)
    finally:
        if process is not None:
            process.kill()
            process.join()


def _reply(port: int, token: str, path: str, parent: int) -> None:
    """Reply to one message; the body of the other process."""
    for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    end_with_parent(parent)
    from fedul.engines.flower.site.client_app import reply_to_message
    from fedul.engines.flower.site.runtime_api import reply_to_task

    try:
        reply_to_task(port, token, lambda message: reply_to_message(message, path))
    except Exception as problem:  # the coordinator learns from the SuperNode that there is no reply
        logging.getLogger("flwr").error("fedul: a message could not be replied to.", exc_info=problem)
        sys.exit(1)
