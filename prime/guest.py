"""The environment of what runs for the agent: kernels, their children, commands, model servers. Pure."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from prime_kernel.launch import MEMORY

#: Variables that pass from the host's environment. Everything else stays there: a variable that nobody thought of may
#: be a secret. ``PYTHONPATH`` and ``LD_LIBRARY_PATH`` are in because the user's own modules may need them.
PASSED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TZ", "TMPDIR", "TEMP", "TMP"),
    *("LANG", "LANGUAGE", "LC_ALL", "LC_COLLATE", "LC_CTYPE", "LC_MESSAGES", "LC_NUMERIC", "LC_TIME"),
    *("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "LD_LIBRARY_PATH"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "MPLBACKEND", "MPLCONFIGDIR"),
)

#: Those among them that list folders in which code is found. A relative entry, or an empty one, is the folder that a
#: program starts in: then whoever wrote that folder chooses what runs, such as a ``sitecustomize.py`` in each Python.
_SEARCHED = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")

#: Nobody sits at this terminal: a program that would ask or page must go on or fail. Not here: ``CI``, by which test
#: tools and builds do other things than at the user's; ``PYTHONUNBUFFERED``, which makes printing slow, and a program
#: that ends writes everything anyway. ``ssh`` and ``sudo`` fail by themselves, having no terminal to ask at.
NON_INTERACTIVE: Mapping[str, str] = MappingProxyType(
    {
        "TERM": "dumb",
        "PAGER": "cat",
        "GIT_PAGER": "cat",
        "MANPAGER": "cat",
        "SYSTEMD_PAGER": "",
        "EDITOR": "false",  # fails, and whoever called it says so
        "VISUAL": "false",
        "GIT_EDITOR": "true",  # takes the proposed message as it is; an empty one makes git give up
        "GIT_SEQUENCE_EDITOR": "true",
        "GIT_MERGE_AUTOEDIT": "no",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "true",  # an empty name and password, which the server refuses
        "SSH_ASKPASS": "false",
        "DEBIAN_FRONTEND": "noninteractive",
        "PIP_NO_INPUT": "1",
        "NO_COLOR": "1",
    }
)


def environment(inherited: Mapping[str, str], more: Iterable[str] = ()) -> dict[str, str]:
    """Return the guest's whole environment: what may pass of ``inherited``, and the variables ``more`` that the user
    named, over the settings that keep programs from asking."""
    passed = {name: inherited[name] for name in (*PASSED, *more) if name in inherited}
    passed |= {name: _absolute(passed[name]) for name in _SEARCHED if name in passed}
    return {**NON_INTERACTIVE, **passed}


def _absolute(folders: str) -> str:
    return os.pathsep.join(filter(os.path.isabs, folders.split(os.pathsep)))


def interactive(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a program in a terminal, where somebody can answer and page; colours, which nobody
    would see, stay off."""
    kept = {name: value for name, value in environment.items() if NON_INTERACTIVE.get(name) != value}
    return {**kept, "TERM": "xterm-256color", "NO_COLOR": "1"}


def limited(environment: Mapping[str, str], memory_bytes: int | None) -> Mapping[str, str]:
    """Return the environment of a kernel that may have so much memory; None means any."""
    return environment if memory_bytes is None else {**environment, MEMORY: str(memory_bytes)}
