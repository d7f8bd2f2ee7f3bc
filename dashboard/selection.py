"""What a browser session has picked out: a request, a block, both or neither.

It lives in the Session (session.py), because the canvas's socket and all pages share it. A page
reads `session.selection` and changes it with `session.select(...)`; the canvas outlines the blocks
of the selected request and keeps the selected block pinned. It survives reruns, refreshes of the
data and changes of page, and is part of a share link.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Selection:
    """`request` is the id of a request, finished ones too; `block` a block's number."""

    request: str | None = None
    block: int | None = None
