"""What a browser is told of a look, as data for JSON: one function a message.

See dashboard/viewer.py for when each is told.
"""

import time
from typing import Any

from dashboard.cells import owner_colour
from dashboard.figures import MINUTE, Figures, Shown, read_figures, shown_figures
from dashboard.holders import top_holders
from dashboard.inspection import request_blocks
from dashboard.journal import BlockName, Line, LineKind, RequestName
from dashboard.readable import shortened
from dashboard.session import Look
from dashboard.track import track

TICKER_LINES = 60


def _producer_now(look: Look) -> float:
    """Producer time at the moment: for a live one it goes on while nothing comes."""
    idle = time.monotonic() - look.feed.last_arrival if look.live and look.current else 0.0
    return look.time + idle


def figures_message(look: Look) -> dict[str, Any] | None:
    """Figures in their groups, the bar of the pool, who holds most; None where none may be shown."""
    figures = read_figures(look, _producer_now(look))
    if figures is None:
        return None
    return {
        "step": look.step,
        "bar": _bar(figures),
        "groups": [
            {"name": name, "figures": [_shown(figure) for figure in group]}
            for name, group in shown_figures(figures)
        ],
        "holders": [
            {
                "request": request,
                "label": shortened(request),
                "colour": owner_colour(request),
                "blocks": blocks,
            }
            for request, blocks in look.read(top_holders) or []
        ],
    }


def moment_message(look: Look) -> dict[str, Any]:
    """Where the session stands, and what must be known before believing what is shown there."""
    status, header = look.status, look.header
    return {
        "source": look.feed.source_name,
        "recorded": not look.feed.live,
        "phase": status.phase.value,
        "text": status.text,
        "warning": status.warning,
        "trusted": status.current,
        "current": look.current,
        "knows": [] if header is None else list(header.knows),
        "live": look.live,
        "playing": look.playing,
        "speed": look.speed,
        "seq": look.seq,
        "step": look.step,
        "seconds": round(look.time - header.monotonic, 2) if header is not None else 0.0,
        "ago": round(look.ago),
        "oldest": look.oldest,
        "newest": look.newest,
        "notice": look.notice,
        "gap": _recent_gap(look),
        "block": look.selection.block,
        "request": look.selection.request,
    }


def _recent_gap(look: Look) -> str | None:
    """What is missing from the last minute, as a sentence."""
    minute = look.rows[int(look.rows["time"].searchsorted(look.time - MINUTE, side="right")) :]
    if not len(minute) or minute["segment"][0] == minute["segment"][-1]:
        return None
    first = minute[minute["segment"] == minute["segment"][-1]]["step"][0]
    told = look.feed.lines(TICKER_LINES, look.upto)
    why = next((line.text for line in told if line.kind is LineKind.MISSING), "the stream broke")
    return (
        f"Records are missing before step {int(first):,} ({why}): figures over the last minute "
        "start there."
    )


def step_of_record(look: Look, seq: int) -> dict[str, Any] | None:
    """Step and seq of a record; None where it is not kept."""
    rows = look.rows
    at = int(rows["seq"].searchsorted(seq))
    if seq < 0 or at >= len(rows) or rows["seq"][at] != seq:
        return None
    return {"step": int(rows["step"][at]), "seq": seq}


def _bar(figures: Figures) -> dict[str, float] | None:
    if figures.active is None:
        return None
    shared = figures.shared or 0
    parts = {
        "used": figures.active - shared,
        "shared": shared,
        "cached": figures.cached,
        "free": figures.free,
    }
    return {name: blocks / figures.num_blocks for name, blocks in parts.items()}


def _shown(figure: Shown) -> dict[str, str]:
    return {
        "label": figure.label,
        "value": figure.value,
        "help": figure.help,
        "tone": figure.tone,
    }


def ticker_message(look: Look) -> list[dict[str, Any]]:
    """The last sentences, the newest first, with what they name as parts to link."""
    return [_line(line) for line in look.feed.lines(TICKER_LINES, look.upto)]


def _line(line: Line) -> dict[str, Any]:
    parts: list[Any] = []
    for part in line.parts:
        match part:
            case RequestName(request):
                parts.append({"request": request, "label": f"request {shortened(request)}"})
            case BlockName(block):
                parts.append({"block": block, "label": f"block {block}"})
            case _:
                parts.append(part)
    return {"kind": line.kind.value, "seq": line.seq, "step": line.step, "parts": parts}


def track_message(look: Look) -> dict[str, Any] | None:
    """What the scrubber draws; None before a header."""
    if look.header is None:
        return None
    rows = look.feed.history.rows()
    return track(rows, look.oldest, look.newest, look.header.num_blocks)


def selected_message(look: Look) -> dict[str, Any] | None:
    """The selected request and its blocks; None where none is selected."""
    request = look.selection.request
    if request is None:
        return None
    blocks = look.read(lambda state: request_blocks(state, request))
    return {"request": request, "label": shortened(request), "blocks": blocks or []}
