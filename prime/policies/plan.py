"""From what a request would hold to what it shall hold. Pure, no model call.

``transcript`` leaves everything as it is. ``fold`` condenses results before they are sent for the first time. ``slice``
folds, and seals completed turns when the next one begins. ``window`` folds, and switches the window when it is nearly
full. ``auto`` does all three, and seals once that is worth it. ``stream`` does what ``slice`` does, and tells a turn
near its beginning what it rests on; while that turn runs nothing leaves. A request that the provider refused for its
size is made small under every policy.
"""

from __future__ import annotations

from prime.policies import insertion, stream, tape, window
from prime.policies.base import Operation, Options, Originals, View
from prime.policies.draft import Draft

#: Tokens of completed turns from which ``auto`` seals them. Below, a call that asks back for one detail costs more than
#: all that it saves: measured over short and long sessions by ``python -m bench.context``.
SEAL_FROM = 4_000


def plan(options: Options, view: View, originals: Originals) -> tuple[Operation, ...]:
    """Return what to append, in order and in one commit, before the request of ``view`` is built."""
    draft = Draft(view)
    if options.policy != "transcript":
        insertion.fold_new(draft, view, originals, options)
    if options.policy in ("slice", "auto", "stream") and view.step == 1:
        tape.seal(draft, view, originals, options.tape, SEAL_FROM if options.policy == "auto" else 0)
    if options.policy == "stream":
        stream.state(draft, view, options.stream)
    if view.refused:
        window.recover(draft, view, originals, options)
        return tuple(draft.operations)
    if view.asked and options.policy == "stream":
        window.keep(draft)
    elif view.asked:
        window.renew(draft, view, originals)
    if options.policy in ("window", "auto"):
        _make_room(draft, view, originals, options)
    return tuple(draft.operations)


def _make_room(draft: Draft, view: View, originals: Originals, options: Options) -> None:
    threshold = options.threshold(view)
    if threshold is None or view.window is None:
        return
    if draft.used >= threshold:
        window.switch(draft, view, originals, min(options.retain, view.window // 4))
        window.shorten(draft, threshold)
    window.remind(draft, view, options)
