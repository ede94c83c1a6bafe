"""Prints what the checks of the environment find."""

from __future__ import annotations

from prime import doctor as checks
from prime.config import Config


async def doctor(config: Config, *, as_json: bool) -> int:
    """Print each finding as its check ends; return 1 when something needed is broken."""
    broken = False
    async for finding in checks.findings(config):
        broken |= finding.level == "problem"
        if as_json:
            print(checks.as_json(finding), flush=True)
            continue
        print(f"{finding.level:<8} {finding.check:<15} {finding.found}", flush=True)
        if finding.fix:
            print(f"{'':<24} fix: {finding.fix}")
    return int(broken)
