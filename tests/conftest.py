import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import kernels
import pytest
from hypothesis import settings

from prime.sessions import Sessions
from prime.verify import verify

settings.register_profile("local", deadline=None, max_examples=60)
settings.register_profile("ci", deadline=None, max_examples=60, derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--forked", action="store_true", help="fork the kernels of tests from a template")
    parser.addoption("--sandboxed", action="store_true", help="run the kernels of tests in a sandbox")


def pytest_configure(config: pytest.Config) -> None:
    kernels.FORKED = config.getoption("--forked")
    kernels.SANDBOXED = config.getoption("--sandboxed")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@contextlib.contextmanager
def _verified(folder: Path) -> Iterator[Path]:
    folder.mkdir()
    yield folder
    sessions = Sessions(folder)
    for session in sessions.all():
        with sessions.read(session) as store:
            verify(store)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A data directory. Whatever a test does, each session in it is checked at the end: bytes, brackets, requests."""
    with _verified(tmp_path / "home") as folder:
        yield folder


@pytest.fixture(scope="module")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The same, for sessions that several tests share."""
    with _verified(tmp_path_factory.mktemp("shared") / "home") as folder:
        yield folder
