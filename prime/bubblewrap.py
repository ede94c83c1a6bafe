"""A :class:`~prime.sandbox.Sandbox` made with bubblewrap. Linux only.

One table of mounts is both what ``bwrap`` is told and what tools in the host are held to, so that both have one view.
"""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from prime.errors import ConfigError, ToolFailed
from prime.sandbox import Level

#: These must reach the command alone: bwrap's own processes, in the same group, would end with all that is inside.
_SIGNALS = "INT,TERM,HUP,QUIT"

#: What can be set for the whole machine through the file system of processes.
_MACHINE = (Path("/proc/sys"), Path("/proc/irq"), Path("/proc/bus"), Path("/proc/sysrq-trigger"))

#: Seconds for each trial at the start.
_TRIAL_S = 20.0

#: Prints the folders that an interpreter loads modules from, and those that it is in.
_FOLDERS = (
    "import json, sys; print(json.dumps([sys.prefix, sys.base_prefix, sys.exec_prefix, *filter(None, sys.path)]))"
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a sandbox is asked for.

    Attributes:
        cwd: the workspace, which can be written; resolved.
        home: the data directory, which is hidden.
        python: the interpreter of kernels, which stays visible with its modules.
        environment: that of processes inside.
        network: whether there is one.
        read: further files and folders that stay visible.
        write: those that can also be changed.
        modules: folders of ours that are loaded inside.
    """

    level: Level
    cwd: Path
    home: Path
    python: str
    environment: Mapping[str, str]
    network: bool = False
    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    modules: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class _Mount:
    """A place inside: what of the host is there (None: an empty folder), and whether it can be changed."""

    inside: Path
    outside: Path | None
    write: bool = False

    @property
    def hides(self) -> bool:
        """Whether what the host has at this place is not there inside."""
        return self.outside != self.inside

    def arguments(self) -> list[str]:
        """Return it as options of ``bwrap``."""
        if self.outside is None:
            return ["--tmpfs", str(self.inside)]
        return ["--bind" if self.write else "--ro-bind", str(self.outside), str(self.inside)]


@asynccontextmanager
async def bubblewrapped(wanted: Wanted) -> AsyncIterator[Bubblewrap]:
    """Give a sandbox that was tried and works. The home and ``/tmp`` of a full one are empty at first, the same for all
    its processes, and gone after the block.

    Raises:
        ConfigError: it cannot be set up here; says what to do.
    """
    if sys.platform != "linux":
        raise ConfigError("a sandbox needs Linux; set sandbox to off, or work in a container")
    with tempfile.TemporaryDirectory(prefix="prs-", ignore_cleanup_errors=True) as private:
        mounts = _mounts(wanted, private, await _interpreter(wanted)) if wanted.level == "full" else ()
        sandbox = Bubblewrap(wanted, mounts)
        code, _, err = await _output(sandbox.command([_program("true")], wanted.cwd), wanted.environment)
        if code:
            raise ConfigError(
                f"the sandbox cannot be set up here ({_last(err)}); "
                "allow unprivileged user namespaces, or set sandbox to off"
            )
        yield sandbox


class Bubblewrap:
    """See :class:`~prime.sandbox.Sandbox`."""

    def __init__(self, wanted: Wanted, mounts: Sequence[_Mount] = ()) -> None:
        """Make a sandbox with ``mounts``, later ones over earlier ones, in a file system that can only be read; at the
        level ``net-off``, in one that is as it is.

        Raises:
            ConfigError: a program is missing.
        """
        self.level: Level = wanted.level
        self.network = wanted.network
        self._mounts = tuple(mounts)
        root = ["--ro-bind", "/", "/", "--dev", "/dev"] if self.level == "full" else ["--dev-bind", "/", "/"]
        placed = [argument for mount in mounts for argument in mount.arguments()]
        self._before = [_program("env"), f"--ignore-signal={_SIGNALS}", _program("bwrap"), "--unshare-all"]
        self._before += ["--share-net"] * self.network + root + ["--proc", "/proc"]
        # of the whole machine, and to root open even without any capability
        self._before += [part for path in _MACHINE if path.exists() for part in ("--ro-bind", str(path), str(path))]
        self._before += placed
        self._after = ["--", _program("env"), f"--default-signal={_SIGNALS}"]

    def command(self, arguments: Sequence[str], cwd: Path, shared: Sequence[Path] = ()) -> list[str]:
        placed = [argument for path in shared for argument in _Mount(path, path, write=True).arguments()]
        return [*self._before, *placed, "--chdir", str(self.inside(cwd)), *self._after, *arguments]

    def environment(self, variables: Mapping[str, str]) -> Mapping[str, str]:
        if self.level != "full":
            return variables
        # they may name what is hidden; /tmp is there
        return {name: value for name, value in variables.items() if name not in ("TMPDIR", "TEMP", "TMP")}

    def outside(self, path: Path) -> Path:
        mount = self._at(path)
        return path if mount is None or mount.outside is None else mount.outside / path.relative_to(mount.inside)

    def inside(self, path: Path) -> Path:
        mount = self._renaming(path)
        return path if mount is None else mount.inside / path.relative_to(str(mount.outside))

    def check(self, path: Path, *, write: bool = False, below: bool = False) -> None:
        if self.level != "full":
            return
        real, name = Path(os.path.realpath(path)), self.inside(path)
        mount = self._renaming(real)
        if mount is None:
            mount = self._at(real)
            if mount is not None and mount.hides:
                raise ToolFailed("denied", f"{name} is hidden by the sandbox")
        if write and (mount is None or not mount.write):
            raise ToolFailed("denied", f"{name} can only be read: the sandbox lets nothing but the workspace change")
        if below and any(each.hides and each.inside.is_relative_to(real) for each in self._mounts):
            raise ToolFailed("denied", f"some of {name} is hidden by the sandbox; name a folder further down")

    @contextmanager
    def pinned(self, path: Path, *, write: bool = False) -> Iterator[Path]:
        real = Path(os.path.realpath(path))
        if self.level != "full":
            yield real
            return
        self.check(real, write=write)
        # held open: cells may put links in the place of folders at any moment
        held = self._folder(real.parent) if write else os.open(real, os.O_PATH)
        try:
            self.check(_place(held), write=write)
            yield Path(f"/proc/self/fd/{held}", real.name if write else "")
        finally:
            os.close(held)

    def _folder(self, path: Path) -> int:
        """Open a folder, made if need be, without following links from where it may be changed."""
        there = next(each for each in (path, *path.parents) if each.exists())
        folder = os.open(there, os.O_PATH | os.O_DIRECTORY)
        try:
            for name in path.relative_to(there).parts:
                self.check(_place(folder), write=True)
                with suppress(FileExistsError):  # somebody was faster
                    os.mkdir(name, dir_fd=folder)
                inner = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
                os.close(folder)
                folder = inner
        except BaseException:
            os.close(folder)
            raise
        return folder

    def _at(self, path: Path) -> _Mount | None:
        """Return the mount that shows what is called ``path`` inside; None for the file system itself."""
        return next((mount for mount in reversed(self._mounts) if path.is_relative_to(mount.inside)), None)

    def _renaming(self, path: Path) -> _Mount | None:
        """Return the mount that shows under another name what the host finds at ``path``."""
        for mount in reversed(self._mounts):
            if mount.outside is not None and mount.hides and path.is_relative_to(mount.outside):
                return mount
        return None


def _mounts(wanted: Wanted, private: str, interpreter: Sequence[str]) -> list[_Mount]:
    """Return the mounts of a full sandbox. Its own files are in the folder ``private``, the interpreter and its modules
    in the folders ``interpreter``.

    Raises:
        ConfigError: the workspace cannot be shown without what is hidden.
    """
    tmp, home = (Path(private).resolve() / name for name in ("tmp", "home"))
    temporary = _folders("/var/tmp", tempfile.gettempdir(), "/tmp")  # the last one gives the files in them their names
    homes = _folders(pwd.getpwuid(os.getuid()).pw_dir, Path.home())
    data = wanted.home.resolve()
    for path in (*temporary, *homes):
        if path.is_relative_to(wanted.cwd):
            raise ConfigError(f"the sandbox hides {path} and cannot show {wanted.cwd}; work in a folder below (--cwd)")
    if wanted.cwd.is_relative_to(data):
        raise ConfigError(f"the sandbox hides the data directory {data}; work in another folder (--cwd)")
    tmp.mkdir()
    home.mkdir()
    # where services listen: a socket in the file system needs no network
    mounts = [_Mount(path, None) for path in _folders("/run")]
    mounts += [_Mount(path, tmp, write=True) for path in temporary]
    mounts += [_Mount(path, home, write=True) for path in homes]
    program = Path(shutil.which(wanted.python) or wanted.python)
    modules = (*map(Path, interpreter), program.parent, program.resolve().parent, *wanted.modules)
    # a path of modules may name the home itself, or what it is in
    seen = [path for path in modules if not any(each.is_relative_to(path) for each in homes)]
    if wanted.network:
        seen.append(Path("/etc/resolv.conf").resolve())
    mounts += [_Mount(path, path) for path in (*seen, *wanted.read) if path.exists()]
    mounts += [_Mount(path, path, write=True) for path in (*wanted.write, wanted.cwd)]
    mounts += [_Mount(path, None) for path in _folders(data)]
    return mounts


async def _interpreter(wanted: Wanted) -> list[str]:
    """Return the folders that the interpreter is installed in and loads modules from."""
    code, out, err = await _output([wanted.python, "-c", _FOLDERS], wanted.environment)
    if code:
        raise ConfigError(f"{wanted.python} does not run ({_last(err)}); check --python")
    return list(json.loads(out))


async def _output(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str, str]:
    """Run a command, in no folder of anybody's, and return its exit code and what it printed."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd="/",
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        return 1, "", str(error)
    try:
        async with asyncio.timeout(_TRIAL_S):
            out, err = await process.communicate()
    except TimeoutError:
        return 1, "", f"no end within {_TRIAL_S:g} s"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode or 0, out.decode(errors="replace"), err.decode(errors="replace")


def _place(descriptor: int) -> Path:
    return Path(os.readlink(f"/proc/self/fd/{descriptor}"))


def _last(printed: str) -> str:
    return printed.strip().rpartition("\n")[2]


def _folders(*paths: str | Path) -> list[Path]:
    """Return those that there are, by their real names, each once, in order."""
    return [*dict.fromkeys(path for path in map(Path.resolve, map(Path, paths)) if path.is_dir())]


def _program(name: str) -> str:
    # first where the system has its own: the PATH may lead into a folder of somebody else's
    found = shutil.which(name, path="/usr/bin:/bin:/usr/local/bin") or shutil.which(name)
    if found is None or not os.path.isabs(found):
        what = "bubblewrap" if name == "bwrap" else "coreutils"
        raise ConfigError(
            f"the sandbox needs {name}; `apt install {what}` (or your system's way), or set sandbox to off"
        )
    return found
