"""Panels of the spec as Grafana's own types: lines, layers, figures, heatmaps."""

from grafana_foundation_sdk.builders import common as build
from grafana_foundation_sdk.builders import dashboard as build_dashboard
from grafana_foundation_sdk.builders import heatmap, stat, timeseries
from grafana_foundation_sdk.builders import prometheus as build_prometheus
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models import heatmap as heatmap_models
from grafana_foundation_sdk.models import prometheus as prometheus_models

from grafana.spec.panels import Chart, Figure, Heat, Panel

DATASOURCE = common.DataSourceRef(type_val="prometheus", uid="${datasource}")
AT_THIS_TIME = "${dashboard:raw}/?at=${__value.time}"
"""Glasspool's dashboard at the time of a point, in Unix milliseconds."""

_SAME_VIEW = "${__url_time_range}&${__all_variables}"

AnyBuilder = timeseries.Panel | stat.Panel | heatmap.Panel


def build_panel(panel: Panel) -> AnyBuilder:
    """The builder of a panel, without a position. Raises TypeError for a kind that is not known."""
    match panel:
        case Chart():
            return _chart(panel)
        case Figure():
            return _figure(panel)
        case Heat():
            return _heat(panel)
    raise TypeError(f"{panel} is no panel that can be built")


def _common(builder: AnyBuilder, panel: Panel) -> None:
    builder.id(panel.id).title(panel.title).description(panel.description)
    builder.datasource(DATASOURCE).span(panel.width).height(panel.height)
    builder.unit(panel.unit)
    if panel.minimum is not None:
        builder.min(panel.minimum)
    if panel.maximum is not None:
        builder.max(panel.maximum)
    if panel.see is not None:
        builder.links([_link("More of this", f"/d/{panel.see}?{_SAME_VIEW}")])


def _link(title: str, url: str) -> build_dashboard.DashboardLink:
    return build_dashboard.DashboardLink(title).type(dashboard.DashboardLinkType.LINK).url(url)


def _queries(builder: AnyBuilder, panel: Panel, *, instant: bool = False) -> None:
    for number, query in enumerate(panel.queries):
        target = (
            build_prometheus.Dataquery()
            .ref_id(chr(ord("A") + number))
            .expr(query.expr)
            .legend_format(query.legend)
            .datasource(DATASOURCE)
        )
        target = target.instant() if instant else target.range()
        if isinstance(panel, Heat) and panel.buckets:
            target.format(prometheus_models.PromQueryFormat.HEATMAP)
        builder.with_target(target)


def _colours(builder: timeseries.Panel | stat.Panel, panel: Panel) -> None:
    for query in panel.queries:
        if query.colour is not None:
            colour = {"mode": "fixed", "fixedColor": query.colour}
            override = dashboard.DynamicConfigValue(id_val="color", value=colour)
            if "{{" in query.legend:
                builder.color_scheme(_fixed(query.colour))
            else:
                builder.override_by_name(query.legend, [override])


def _fixed(colour: str) -> build_dashboard.FieldColor:
    mode = dashboard.FieldColorModeId.FIXED
    return build_dashboard.FieldColor().mode(mode).fixed_color(colour)


def _thresholds(panel: Panel) -> build_dashboard.ThresholdsConfig:
    steps = [dashboard.Threshold(value=None, color=panel.base)]
    steps += [dashboard.Threshold(value=mark.value, color=mark.colour) for mark in panel.marks]
    return build_dashboard.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(steps)


def _chart(panel: Chart) -> timeseries.Panel:
    builder = timeseries.Panel()
    _common(builder, panel)
    _queries(builder, panel)
    _colours(builder, panel)
    builder.data_links([_link("Glasspool at this time", AT_THIS_TIME).target_blank(True)])
    builder.line_width(1).show_points(common.VisibilityMode.NEVER)
    # Where an engine was down there is a gap, not a line across it.
    builder.span_nulls(False)
    if panel.stacked or panel.shares:
        mode = common.StackingMode.PERCENT if panel.shares else common.StackingMode.NORMAL
        builder.stacking(build.StackingConfig().group("A").mode(mode)).fill_opacity(70)
    else:
        builder.fill_opacity(8)
    if panel.marks:
        style = build.GraphThresholdsStyleConfig().mode(common.GraphThresholdsStyleMode.DASHED)
        builder.thresholds(_thresholds(panel)).thresholds_style(style)
    builder.legend(
        build.VizLegendOptions()
        .display_mode(common.LegendDisplayMode.TABLE)
        .placement(common.LegendPlacement.BOTTOM)
        .show_legend(True)
        .calcs(["lastNotNull", "max"])
    )
    return builder.tooltip(
        build.VizTooltipOptions()
        .mode(common.TooltipDisplayMode.MULTI)
        .sort(common.SortOrder.DESCENDING)
    )


def _figure(panel: Figure) -> stat.Panel:
    builder = stat.Panel()
    _common(builder, panel)
    _queries(builder, panel, instant=True)
    by_threshold = dashboard.FieldColorModeId.THRESHOLDS
    builder.color_scheme(build_dashboard.FieldColor().mode(by_threshold))
    _colours(builder, panel)
    builder.no_value(panel.empty).thresholds(_thresholds(panel))
    text = common.BigValueTextMode.NAME if panel.names else common.BigValueTextMode.VALUE
    builder.text_mode(text).color_mode(common.BigValueColorMode.VALUE)
    builder.graph_mode(common.BigValueGraphMode.NONE)
    return builder.reduce_options(build.ReduceDataOptions().calcs(["lastNotNull"]))


def _heat(panel: Heat) -> heatmap.Panel:
    builder = heatmap.Panel()
    _common(builder, panel)
    _queries(builder, panel)
    builder.data_links([_link("Glasspool at this time", AT_THIS_TIME).target_blank(True)])
    colour = (
        heatmap.HeatmapColorOptions()
        .mode(heatmap_models.HeatmapColorMode.SCHEME)
        .scheme("YlOrRd")
        .scale(heatmap_models.HeatmapColorScale.EXPONENTIAL)
        .exponent(0.5)
        .steps(64)
    )
    axis = heatmap.YAxisConfig().unit(panel.unit).axis_placement(common.AxisPlacement.LEFT)
    if not panel.buckets:
        colour.exponent(1).min(0).max(panel.maximum)
    builder.color(colour).y_axis(axis).calculate(False).cell_gap(1)
    builder.cell_values(heatmap.CellValues().unit(panel.cell_unit))
    # Cells without any value would hide the ones with few.
    builder.filter_values(heatmap.FilterValueRange().le(1e-9))
    builder.rows_frame(
        heatmap.RowsHeatmapOptions().layout(common.HeatmapCellLayout.AUTO)
    ).show_legend()
    return builder.tooltip(
        heatmap.HeatmapTooltip().mode(common.TooltipDisplayMode.SINGLE).show_color_scale(True)
    )
