"""What the page "Lab" says in words: a sentence for each allocator, with its own figures in it."""

from dashboard.markdown import escape
from dashboard.readable import plural
from engine.lab import DynamicRun, Kind, LabSettings, Measured, StaticUsage, SweepPoint

PAPER = "[PagedAttention, arXiv 2309.06180](https://arxiv.org/abs/2309.06180)"
VATTENTION = "[vAttention, arXiv 2405.04437](https://arxiv.org/abs/2405.04437)"


def static_sentences(usages: list[StaticUsage], settings: LabSettings) -> list[str]:
    """One Markdown sentence an allocator, on the lengths stored at once."""
    share = {usage.kind: f"{100 * usage.utilisation:.1f} %" for usage in usages}
    wasted = {usage.kind: f"{usage.wasted_per_sequence:,.1f}" for usage in usages}
    tokens = settings.shape.tokens_per_page
    return [
        f"**naive** takes {settings.max_model_len:,} slots for every sequence, as it may become that "
        f"long: {share[Kind.NAIVE]} of them store a token.",
        "**buddy** takes the next power of two of a sequence's length, as if it knew that length to a "
        f"factor of two: {share[Kind.BUDDY]}.",
        "**exact** takes exactly the length a sequence will reach, which nobody can know beforehand: "
        f"{share[Kind.EXACT]}. Whether that is enough once sequences come and go is shown below.",
        f"**mapped** keeps addresses contiguous and maps 2 MiB pages when tokens reach them; a page "
        f"holds {tokens:,} tokens of one layer's K or V, so {wasted[Kind.MAPPED]} slots a sequence "
        f"stay empty: {share[Kind.MAPPED]} (the way of {VATTENTION}, whose authors change the driver "
        "to get smaller pages).",
        f"**paged** takes a block of {plural(settings.block_size, 'slot')} when tokens reach it, "
        "anywhere in memory; only the last block of a sequence has empty slots, "
        f"{wasted[Kind.PAGED]} on average: {share[Kind.PAGED]} ({PAPER}).",
    ]


def dynamic_sentences(runs: list[DynamicRun]) -> list[str]:
    """What the dynamic form shows, in Markdown sentences."""
    of = {run.kind: run for run in runs}
    paged, exact, naive = of[Kind.PAGED], of[Kind.EXACT], of[Kind.NAIVE]
    if exact.refused_with_free:
        holes = (
            "exact reserves no slot in vain, yet "
            f"{plural(exact.refused_with_free, 'request')} could not be placed although enough memory "
            "was free: no single hole was long enough. Blocks can lie anywhere, so paged never has this."
        )
    else:
        holes = (
            "here no request of exact had to wait for a long enough hole. Unequal lengths and a fuller "
            "memory make them wait."
        )
    # Who can place none holds no slot, of which no share can be told.
    filled = ", ".join(
        f"{_filled(run)} with {run.kind}"
        for run in (naive, exact, paged)
        if run.never_fit < run.requests
    )
    reserved = f"of the slots that sequences hold, a token is in {filled}. " if filled else ""
    return [
        f"**Holes:** {holes}",
        f"**Reservations:** {reserved}"
        f"{PAPER}, figure 2, measured 20.4 to 38.2 % in engines that reserve, and 96.3 % in vLLM.",
        f"**What it buys:** in the same memory, {_pace(naive)}; {_pace(exact)}; {_pace(paged)}.",
        "**What it costs:** who takes memory on demand can run dry. paged preempted "
        f"{plural(paged.preemptions, 'time')} and stored {paged.recomputed:,} tokens once more. "
        "Here that takes no time; in an engine it does.",
    ]


def sweep_sentences(points: list[SweepPoint], measured: Measured | None) -> list[str]:
    """Why 16, in Markdown sentences: of the smallest block, of 16 and of the largest."""
    shown = {point.block_size: point.usage for point in points}
    sizes = [min(shown), 16, max(shown)]
    said = "; ".join(
        f"blocks of {size} use {100 * shown[size].utilisation:.1f} % and need "
        f"{shown[size].table_entries:,} table entries"
        for size in sizes
    )
    sentences = [
        f"**Memory:** {said}.",
        f"**Time:** {PAPER}, §7.2, chose 16: large enough for the GPU to read well, small enough to "
        "waste little.",
    ]
    if measured is not None:
        times = ", ".join(
            f"{ratio.median:.2f} × (blocks of {size})"
            for size in sizes
            if (ratio := measured.ratio(size))
        )
        sentences.append(
            f"**Measured:** attention over blocks takes {times} the time that it takes over one strip, "
            f"on {escape(measured.device or 'a device that the file does not tell')}."
        )
    return sentences


def _filled(run: DynamicRun) -> str:
    return f"{100 * run.mean.utilisation:.1f} %"


def _pace(run: DynamicRun) -> str:
    if run.never_fit == run.requests:
        return f"{run.kind} can place none"
    running = f"{run.kind} runs {run.mean_running:.1f} sequences on average"
    return f"{running} and is done at step {run.steps:,}"
