"""Every error of the host. Errors carry data and do nothing; expected outcomes are values, not errors.

PrimeError                      anything a caller may want to catch from this package
├── ConfigError                 the configuration is wrong: names the key and the nearest valid one
├── ModelNotFound               no model by that name, or none configured: lists the choices
├── LogError                    a session's log
│   ├── AppendRefused           an event that may not enter the log; the log is unchanged
│   │   ├── SurfaceError        a surface operation that names a wrong range or wrong sources
│   │   └── TraceError          an event outside its turn, step or cell bracket
│   ├── SessionNotFound         no such session: names the nearest
│   ├── SessionBusy             another process holds the session: says which
│   ├── SessionNotOpen          no process holds the session, so there is nothing to look into
│   ├── CorruptLog              the stored bytes are not what was written
│   ├── UnsupportedLog          written by a newer version: upgrade
│   └── RequestMismatch         what was about to be sent is not what the log says
├── ReplError                   the kernel
│   ├── KernelStartFailed       it could not be started: says what was tried
│   │   └── TooManyKernels      as many as may be are alive, and each is needed
│   ├── CellBusy                a second cell while one runs
│   └── SnapshotFailed          its variables could not be saved; they are as they were
├── ProviderError               a model request failed; ``code`` says how, ``retryable`` whether again makes sense
└── ToolFailed                  raised by a tool body; becomes an error value, never a traceback of ours
"""

from __future__ import annotations


class PrimeError(Exception):
    """Base of every error of this package. ``str(error)`` is one line that says what was wrong and what to do."""


class ConfigError(PrimeError):
    """The configuration is wrong."""


class ModelNotFound(PrimeError):
    """No model by that name, or none configured."""


class LogError(PrimeError):
    """Base of the errors of a session's log."""


class AppendRefused(LogError):
    """An event that may not enter the log. The log is unchanged."""


class SurfaceError(AppendRefused):
    """A surface operation that names a wrong range or wrong sources."""


class TraceError(AppendRefused):
    """An event outside its turn, step, cell or dispatch bracket."""


class SessionNotFound(LogError):
    """No such session."""


class SessionBusy(LogError):
    """Another process holds the session. ``owner`` is its readable record."""

    def __init__(self, message: str, owner: str = "") -> None:
        super().__init__(message)
        self.owner = owner


class SessionNotOpen(LogError):
    """No process holds the session: there is no kernel to look into."""


class CorruptLog(LogError):
    """The stored bytes are not what was written. ``seq`` is the first entry that cannot be trusted."""

    def __init__(self, message: str, seq: int | None = None) -> None:
        super().__init__(message)
        self.seq = seq


class UnsupportedLog(LogError):
    """The log was written by a newer version of this package."""


class RequestMismatch(LogError):
    """What was about to be sent to the model is not what the log says."""


class ReplError(PrimeError):
    """Base of the errors of the kernel."""


class KernelStartFailed(ReplError):
    """The kernel could not be started."""


class TooManyKernels(KernelStartFailed):
    """As many kernels as may be are alive, and each of them is needed."""


class CellBusy(ReplError):
    """A cell was submitted while another one runs in the same kernel."""


class SnapshotFailed(ReplError):
    """The variables of a kernel could not be saved. They are as they were, and so is an older snapshot."""


class ProviderError(PrimeError):
    """A model request failed.

    Attributes:
        code: one of ``transport``, ``timeout``, ``rate_limit``, ``server``, ``auth``, ``bad_request``, ``overflow``
            (the request is larger than the model's window), ``empty`` (a reply with nothing in it), ``malformed``
            (bytes that do not follow the provider's protocol).
        retryable: whether the same request may succeed later.
        retry_after_s: seconds the provider asked to wait, else None.
        status: HTTP status, else None.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        retryable: bool,
        retry_after_s: float | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.retryable = retryable
        self.retry_after_s = retry_after_s
        self.status = status


class ToolFailed(PrimeError):
    """Raised by a tool body for a failure the program should see. ``code`` is a stable word such as ``not_found``."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
