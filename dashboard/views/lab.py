"""The page "Lab": allocators compared on the same lengths, stored at once and over time."""

import pandas as pd
import streamlit as st

from dashboard.charts_lab import (
    LINES,
    NAMES,
    map_chart,
    shares_chart,
    static_chart,
    sweep_chart,
)
from dashboard.lab_choices import Choices, choose, choose_traffic
from dashboard.lab_results import (
    MOST_TOKENS,
    changed_at,
    measured_times,
    runs_of,
    sample_of,
    settings_of,
    stored_of,
    sweep_of,
    usages_of,
)
from dashboard.lab_words import dynamic_sentences, static_sentences, sweep_sentences
from dashboard.markdown import escape
from dashboard.readable import plural
from dashboard.standing import small
from engine.events import TraceError
from engine.lab import ConfigError, DynamicRun, Kind, Sample, Use
from engine.lab.rows import account_rows, map_rows, sweep_rows

KINDS = tuple(kind.value for kind in Kind)


def lab_page() -> None:
    """Draws the page."""
    st.markdown("### Lab: the same sequences, five ways to give them memory")
    small(
        "Exact arithmetic on real placements, without a model. The paged allocator is the engine's own "
        "block pool and block tables. Memory is counted in slots: room for one token's KV."
    )
    choices = choose()
    drawn = choices.drawn
    if not drawn.lengths:
        st.info("Name a file of lengths above.", icon=":material/folder_open:")
        return
    changed = changed_at(drawn.lengths)
    try:
        found = sample_of(drawn, changed)
    except (ConfigError, TraceError) as error:
        st.error(escape(str(error)), icon=":material/error:")
        return
    _what(found, stored_of(drawn, changed))
    _static(choices, changed)
    _dynamic(choices, changed)
    _sweep(choices, changed)


def _what(found: Sample, stored: Sample) -> None:
    notes = []
    if found.left_out:
        notes.append(f"{found.left_out:,} longer than max_model_len are left out")
    if len(stored.lengths) < len(found.lengths):
        notes.append(
            f"of {len(found.lengths):,}, the first up to {MOST_TOKENS:,} tokens: "
            "`glasspool lab fragmentation` takes all"
        )
    more = f" ({'; '.join(notes)})" if notes else ""
    small(
        f"{plural(len(stored.lengths), 'sequence')}, **{sum(stored.totals):,} tokens**, the longest "
        f"{max(stored.totals):,}{more}."
    )


def _static(choices: Choices, changed: float) -> None:
    st.markdown(
        "#### All stored at once",
        help="Every sequence at its final length, in as much memory as that takes.",
    )
    usages = usages_of(choices, changed)
    rows = [
        {
            "allocator": usage.kind.value,
            "use": NAMES[use],
            "slots": slots,
            "order": order,
            "taken": usage.taken if use is Use.STORED else None,
            "label": f"{100 * usage.utilisation:.1f} %" if use is Use.STORED else "",
        }
        for usage in usages
        for order, (use, slots) in enumerate(
            ((Use.STORED, usage.stored), (Use.INTERNAL, usage.wasted))
        )
    ]
    static_chart(pd.DataFrame(rows), KINDS)
    st.dataframe(
        pd.DataFrame(
            {
                "allocator": [usage.kind.value for usage in usages],
                "slots taken": [usage.taken for usage in usages],
                "stored": [usage.stored for usage in usages],
                "utilisation (%)": [100 * usage.utilisation for usage in usages],
                "wasted slots a sequence": [
                    round(usage.wasted_per_sequence, 1) for usage in usages
                ],
                "table entries": [usage.table_entries for usage in usages],
            }
        ),
        hide_index=True,
        key="lab-static-table",
        column_config={
            "slots taken": st.column_config.NumberColumn(format="localized"),
            "stored": st.column_config.NumberColumn(format="localized"),
            "utilisation (%)": st.column_config.NumberColumn(
                format="%.1f", help="Stored of taken slots"
            ),
            "wasted slots a sequence": st.column_config.NumberColumn(format="localized"),
            "table entries": st.column_config.NumberColumn(
                format="localized",
                help="What tells where tokens lie: blocks of all tables (paged), 2 MiB pages of all "
                "layers (mapped), one address a sequence (the others)",
            ),
        },
        alt="Slots taken, utilisation, waste and table entries of each allocator",
    )
    st.markdown("\n".join(f"- {line}" for line in static_sentences(usages, settings_of(choices))))


@st.fragment
def _dynamic(choices: Choices, changed: float) -> None:
    st.markdown(
        "#### Requests come and go",
        help="First come, first served, over a bounded memory. A running sequence stores one token a "
        "step and leaves after its last. The head of the queue waits until it can be placed.",
    )
    traffic = choose_traffic()
    runs = runs_of(choices, traffic, changed)
    steps = [moment.step for moment in runs[0].moments]
    step = steps[0]
    if len(steps) > 1:
        step = st.select_slider(
            "Moment: the end of step",
            steps,
            value=steps[len(steps) // 2],
            key=f"lab-step-{steps[0]}-{steps[-1]}",
            format_func=lambda step: f"{step:,}",
            help="The address map below is of this moment. Memory is one line of slots, cut into four.",
        )
    number = steps.index(step)
    width = -(-traffic.memory // LINES)
    map_chart(
        pd.DataFrame([row for run in runs for row in map_rows(run, number, LINES)]), KINDS, width
    )
    small(
        "A hole counts as waste while it is of no use to the next request. Over-reserved slots will be "
        "written by their sequence, internal waste never: told apart afterwards, by the length that is "
        "reached. Point at a sequence to see where it lies."
    )
    _moment_table(runs, number)
    shares = pd.DataFrame([row for run in runs for row in account_rows(run.kind.value, run.mean)])
    uses = {use.value: use for use in Use}
    shares["order"] = shares["use"].map({name: order for order, name in enumerate(uses)})
    shares["use"] = shares["use"].map({name: NAMES[use] for name, use in uses.items()})
    st.markdown("**On average, from the first arrival to the last**")
    shares_chart(shares, KINDS)
    _fates(runs)
    _refusals(runs)
    st.markdown("\n".join(f"- {line}" for line in dynamic_sentences(runs)))


def _moment_table(runs: list[DynamicRun], number: int) -> None:
    moments = [run.moments[number] for run in runs]
    frame = pd.DataFrame({"allocator": KINDS})
    for use, name in NAMES.items():
        frame[name] = [int(moment.account.of(use)) for moment in moments]
    frame["running"] = [moment.running for moment in moments]
    frame["waiting"] = [moment.waiting for moment in moments]
    st.dataframe(
        frame,
        hide_index=True,
        key="lab-moment-table",
        column_config={
            name: st.column_config.NumberColumn(format="localized")
            for name in (*NAMES.values(), "running", "waiting")
        },
        alt="Slots by use at the chosen moment, running and waiting requests",
    )


def _fates(runs: list[DynamicRun]) -> None:
    st.dataframe(
        pd.DataFrame(
            {
                "allocator": KINDS,
                "running, mean": [run.mean_running for run in runs],
                "waited": [run.waited for run in runs],
                "mean wait (steps)": [round(run.mean_wait) for run in runs],
                "preemptions": [run.preemptions for run in runs],
                "done at step": [run.steps for run in runs],
            }
        ),
        hide_index=True,
        key="lab-fates",
        column_config={
            "running, mean": st.column_config.NumberColumn(format="%.1f"),
            "waited": st.column_config.NumberColumn(
                format="localized", help="Did not start when they came"
            ),
            "mean wait (steps)": st.column_config.NumberColumn(
                format="localized", help="Over all that started"
            ),
            "preemptions": st.column_config.NumberColumn(
                format="localized",
                help="A sequence lost its memory to an older one and stored its tokens again",
            ),
            "done at step": st.column_config.NumberColumn(
                format="localized", help="When the last request had left"
            ),
        },
        alt="What became of the requests with each allocator",
    )


def _refusals(runs: list[DynamicRun]) -> None:
    st.markdown("**Requests that could not be placed**")
    st.dataframe(
        pd.DataFrame(
            {
                "allocator": KINDS,
                "could not be placed": [run.refused for run in runs],
                "although enough memory was free": [run.refused_with_free for run in runs],
                "although enough slots were empty": [run.refused_with_empty for run in runs],
                "never fit": [run.never_fit for run in runs],
            }
        ),
        hide_index=True,
        key="lab-refusals",
        column_config={
            "could not be placed": st.column_config.NumberColumn(
                format="localized",
                help="At some step, when it was their turn to start or to grow. Each counts once",
            ),
            "although enough memory was free": st.column_config.NumberColumn(
                format="localized",
                help="The slots that no sequence had were, in sum, as many as the allocator would have "
                "taken: only their places were wrong",
            ),
            "although enough slots were empty": st.column_config.NumberColumn(
                format="localized",
                help="The slots without a token, also those that other sequences had, were enough for "
                "all tokens still to come",
            ),
            "never fit": st.column_config.NumberColumn(
                format="localized", help="Turned away: the empty memory has no room for them"
            ),
        },
        alt="Requests that could not be placed with each allocator, and with how much memory free",
    )


def _sweep(choices: Choices, changed: float) -> None:
    st.markdown(
        "#### Why 16",
        help="Small blocks waste little and need long tables; large blocks the other way round.",
    )
    points = sweep_of(choices.drawn, choices.block_size, changed)
    measured = measured_times()
    rows = pd.DataFrame(sweep_rows(points, measured)).rename(
        columns={"attention paged / contiguous": "time"}
    )
    for column in ("time", "least", "most"):
        rows[column] = rows[column].astype(float)
    rows["chosen"] = (rows["block size"] == choices.block_size).astype(int)
    sweep_chart(rows, measured is not None)
    st.markdown("\n".join(f"- {line}" for line in sweep_sentences(points, measured)))
    if measured is None:
        small(
            "The time of attention is not measured here: `glasspool bench attention --out FOLDER` "
            "measures it."
        )
        return
    shapes = {(row.context, row.batch) for row in measured.rows}
    command = f" By `{measured.command}`." if measured.command else ""
    small(
        f"Attention's time, paged as a multiple of contiguous, is the median over {len(shapes)} shapes; "
        "the line goes from the least to the most. A block size without a point was not measured. "
        f"Measured on: {escape(measured.origin)}.{command} A GPU's ratios differ."
    )
