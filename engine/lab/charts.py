"""The lab's results as pictures for files (needs altair). Rows are those of engine/lab/rows.py."""

import altair as alt

from engine.lab.rows import Row

COLOURS = {
    "stored": "#0858C7",
    "reserved": "#47AAF5",
    "internal": "#FFB902",
    "external": "#D82607",
    "usable": "#E4E7EC",
}
"""By use; the palette of the pool's pages."""


def static_chart(rows: list[Row]) -> alt.LayerChart:
    """Slots of each allocator, as a multiple of what is stored: stored, then wasted."""
    parts = [
        {
            "allocator": row["allocator"],
            "use": use,
            "slots": row[column],
            "order": order,
        }
        for row in rows
        for order, (use, column) in enumerate((("stored", "stored"), ("internal", "wasted")))
    ]
    names = [row["allocator"] for row in rows]
    base = alt.Chart(alt.Data(values=parts), title="All lengths stored at once")
    y = alt.Y("allocator:N", title=None, sort=names)
    bars = base.mark_bar().encode(
        x=alt.X("slots:Q", title="slots taken", stack="zero"),
        y=y,
        color=_use(["stored", "internal"]),
        order="order:Q",
    )
    text = (
        alt.Chart(alt.Data(values=rows))
        .transform_calculate(label="format(datum.utilisation, '.1%') + ' used'")
        .mark_text(align="left", dx=4)
        .encode(x="taken:Q", y=y, text="label:N")
    )
    return alt.layer(bars, text).properties(width=560, height=170)


def dynamic_chart(rows: list[Row]) -> alt.Chart:
    """Mean shares of the memory by use."""
    parts = [
        {"allocator": row["allocator"], "use": use, "share": row[use], "order": order}
        for row in rows
        for order, use in enumerate(COLOURS)
    ]
    return (
        alt.Chart(alt.Data(values=parts), title="Arrivals and departures: what memory is for, mean")
        .mark_bar()
        .encode(
            x=alt.X("share:Q", title="share of the memory", axis=alt.Axis(format="%")),
            y=alt.Y("allocator:N", title=None, sort=[row["allocator"] for row in rows]),
            color=_use(list(COLOURS)),
            order="order:Q",
        )
        .properties(width=560, height=170)
    )


def map_chart(rows: list[Row], step: int) -> alt.Chart:
    """Address maps of one step under each other; rectangles of rows.map_rows."""
    names = list(dict.fromkeys(row["allocator"] for row in rows))
    values = [{**row, "bottom": row["line"] + 0.9} for row in rows]
    return (
        alt.Chart(alt.Data(values=values), title=f"Memory by address, step {step:,}")
        .mark_rect(stroke="white", strokeWidth=0.3)
        .encode(
            x=alt.X("from:Q", title="slot within the line", scale=alt.Scale(nice=False)),
            x2="to:Q",
            y=alt.Y("line:Q", title=None, axis=None, scale=alt.Scale(reverse=True, nice=False)),
            y2="bottom:Q",
            color=_use(list(COLOURS)),
            row=alt.Row("allocator:N", title=None, sort=names),
        )
        .properties(width=760, height=60)
    )


def sweep_chart(rows: list[Row]) -> alt.VConcatChart:
    """Utilisation, table entries and, where measured, attention's time over the block size."""
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X("block size:O", title="block size (slots)", axis=alt.Axis(labelAngle=0))
    )
    panels = [
        base.mark_line(point=alt.OverlayMarkDef(color=COLOURS["stored"]), color=COLOURS["stored"])
        .encode(y=alt.Y("utilisation:Q", scale=alt.Scale(zero=False), axis=alt.Axis(format="%")))
        .properties(title="Utilisation", width=420, height=130),
        base.mark_line(
            point=alt.OverlayMarkDef(color=COLOURS["reserved"]), color=COLOURS["reserved"]
        )
        .encode(y=alt.Y("table entries:Q", scale=alt.Scale(type="log")))
        .properties(title="Block-table entries", width=420, height=130),
    ]
    if any(row["least"] is not None for row in rows):
        times = base.transform_filter("datum.least != null")
        y = alt.Y(
            "attention paged / contiguous:Q",
            title="paged / contiguous",
            scale=alt.Scale(zero=False),
        )
        panels.append(
            alt.layer(
                times.mark_rule(color=COLOURS["external"]).encode(
                    y=alt.Y("least:Q", title="paged / contiguous", scale=alt.Scale(zero=False)),
                    y2="most:Q",
                ),
                times.mark_line(
                    point=alt.OverlayMarkDef(color=COLOURS["external"]), color=COLOURS["external"]
                ).encode(y=y),
            ).properties(
                title="Time of attention, measured: median, least and most of all shapes",
                width=420,
                height=130,
            )
        )
    return alt.vconcat(*panels)


def _use(uses: list[str]) -> alt.Color:
    scale = alt.Scale(domain=uses, range=[COLOURS[use] for use in uses])
    return alt.Color("use:N", scale=scale, title=None)
