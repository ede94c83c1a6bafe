"""Lists the models that can be used."""

from __future__ import annotations

import json
import sys

from prime import doctor, models
from prime.config import KEY_VARIABLES, Config
from prime.errors import PrimeError
from prime.providers import registry


async def show(config: Config, *, as_json: bool, check: bool) -> int:
    """Print each model that is there, the one that `run` takes first; return 1 when one of them fails its check."""
    failed = False
    found = await models.candidates(config)
    for candidate in found:
        status = await _status(config, candidate) if check else None
        failed |= status is not None and not status.startswith("answers")
        if as_json:
            fields = {"model": candidate.model, "why": candidate.why} | ({"check": status} if check else {})
            print(json.dumps(fields, ensure_ascii=False), flush=True)
        else:
            print(f"{candidate.model}  ({candidate.why})" + (f"  {status}" if check else ""), flush=True)
    if not as_json:
        _advise(config, bool(found))
    return int(failed)


async def _status(config: Config, candidate: models.Candidate) -> str:
    try:
        provider = models.resolve(config.model_copy(update={"model": candidate.model}))
        try:
            return f"answers: {await doctor.ask(provider)!r}"
        finally:
            await provider.close()
    except PrimeError as error:
        return f"fails: {error}"


def _advise(config: Config, any_found: bool) -> None:
    if not any_found:
        print("no model is there", file=sys.stderr)
    print(
        "\nany other: --model PROVIDER/NAME, or PRIME_REPL_MODEL, or `model` in the configuration file\n"
        f"  forms: {registry.choices()}\n"
        f"  keys:  {', '.join(KEY_VARIABLES)}\n"
        f"  local model files: {config.home / 'models'}/NAME.gguf is local/NAME",
        file=sys.stderr,
    )
