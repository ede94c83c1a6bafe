"""The feature test of the interrupt policy. Its behaviour is tested in real kernels (test_repl_stops)."""

from __future__ import annotations

import signal

import pytest
from ipykernel.ipkernel import IPythonKernel
from prime_kernel.interrupt import FRAME, WAKE, Policy, seams


class Renamed:
    """A kernel of some future that works otherwise."""

    async def do_execute(self) -> None: ...

    async def dispatch_shell(self) -> None: ...


def test_the_installed_ipykernel_has_the_seams() -> None:
    assert seams(IPythonKernel)


@pytest.mark.parametrize("kernel_class", [Renamed, object])
def test_without_the_seams_the_handler_of_ipykernel_stays(kernel_class: type) -> None:
    policy = Policy()
    before = signal.getsignal(signal.SIGINT)
    assert not policy.install(kernel_class)
    assert policy.name == WAKE
    assert signal.getsignal(signal.SIGINT) is before


def test_with_them_the_policy_takes_over() -> None:
    before = signal.getsignal(signal.SIGINT)
    policy = Policy()
    try:
        assert policy.install()
        assert policy.name == FRAME
        signal.raise_signal(signal.SIGINT)  # no cell is on the stack: nothing happens
    finally:
        signal.signal(signal.SIGINT, before)
