"""The kernel's command: ``python launch.py -f CONNECTION_FILE``.

Loads this folder as the package ``prime_kernel``, so that nothing but ``ipykernel`` has to be installed in the
interpreter that runs it.
"""

from __future__ import annotations

import importlib.util
import os
import resource
import sys

#: Environment variables with the bridge's address and token; gone from the environment before any user code.
SOCKET, TOKEN = "PRIME_KERNEL_SOCKET", "PRIME_KERNEL_TOKEN"
#: And one with the bytes of memory it may have, for a kernel with a limit.
MEMORY = "PRIME_KERNEL_MEMORY"


def load(folder: str) -> None:
    """Import ``folder`` as the package ``prime_kernel``."""
    spec = importlib.util.spec_from_file_location(
        "prime_kernel", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"no package in {folder}")
    package = importlib.util.module_from_spec(spec)
    sys.modules["prime_kernel"] = package
    spec.loader.exec_module(package)


def limit_memory(most: int) -> None:
    """Limit this process, and each that it starts, to ``most`` bytes of data."""
    # not RLIMIT_AS: that counts addresses, of which some programs (node, java) reserve far more than they ever use
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    # Python puts the script's folder first, where our module names would hide the user's
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]
    import ipykernel  # noqa: F401 - first, so that its absence is what the host is told

    load(here)
    from prime_kernel.app import main
    from prime_kernel.template import SOCKET as TEMPLATE
    from prime_kernel.template import serve

    if TEMPLATE in os.environ:
        serve()  # goes on in each process that it forks
    if MEMORY in os.environ:
        limit_memory(int(os.environ.pop(MEMORY)))
    main(sys.argv[1:], os.environ.pop(SOCKET), os.environ.pop(TOKEN))
