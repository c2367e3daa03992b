"""The kinds of panels, in one style: time series, stats, lanes, bars, tables; each with title, meaning, unit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    dashboard,
    heatmap,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.models import common as kinds
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from grafana.thresholds import Levels
from grafana.variables import DATASOURCE

SECONDS, SHARE, BYTES, BYTES_PER_SECOND, COUNT, WRITES = "s", "percentunit", "bytes", "Bps", "none", "wps"
HERTZ, WATTS, CELSIUS, TIME = "hertz", "watt", "celsius", "dateTimeAsIso"
MONEY = "locale"  # a number with its thousands apart: the price has the currency of who wrote it
NO_COLOUR = "transparent"
_LATEST = common.ReduceDataOptions().calcs(["lastNotNull"]).values(False)


@dataclass(frozen=True)
class Q:
    """A query of a panel, with the name of its series; ``interval`` is the least between two points, as "5m"."""

    expr: str
    legend: str = ""
    interval: str = ""
    unit: str = ""
    none: str = ""  # what a panel says where this has no value


def time_series(title: str, meaning: str, *queries: Q, unit: str = "", **options: Any) -> Any:
    """Lines over time, with a legend that tells the latest and the greatest value. ``unit``: else the first query's.

    Options: ``stacked``; ``levels`` to draw as dashed lines; ``colours`` by series' name; ``most`` of the axis;
    ``signed`` where a value may be negative; ``logarithmic``; ``none``, what is said where there is no line.
    """
    first = queries[0]
    panel = _begun(timeseries.Panel(), title, meaning).unit(unit or first.unit)
    if options.get("logarithmic"):
        panel = panel.scale_distribution(common.ScaleDistributionConfig().type(kinds.ScaleDistribution.LOG).log(10))
    elif not options.get("signed"):
        panel = panel.min(0)
    panel = panel.legend(_legend(stacked=bool(options.get("stacked"))))
    panel = panel.tooltip(
        common.VizTooltipOptions().mode(kinds.TooltipDisplayMode.MULTI).sort(kinds.SortOrder.DESCENDING)
    )
    panel = panel.line_width(1).fill_opacity(10).show_points(kinds.VisibilityMode.NEVER).span_nulls(False)
    if options.get("stacked"):
        panel = panel.stacking(common.StackingConfig().mode(kinds.StackingMode.NORMAL).group("A")).fill_opacity(60)
    if "most" in options:
        panel = panel.max(options["most"])
    if none := options.get("none", first.none):
        panel = panel.no_value(none)
    if "levels" in options:
        panel = panel.thresholds(_thresholds(options["levels"])).thresholds_style(
            common.GraphThresholdsStyleConfig().mode(kinds.GraphThresholdsStyleMode.DASHED)
        )
    return _asking(_coloured(panel, options.get("colours", {})), queries)


def stat_of(title: str, meaning: str, unit: str, query: Q, **options: Any) -> Any:
    """One value, now or over the whole range. Options: ``levels``, ``none`` (what is said for no value), ``decimals``.

    ``names``: the value's name matters, not the value: "name" or "value_and_name"; ``colours`` by that name.
    """
    text = {"name": kinds.BigValueTextMode.NAME, "value_and_name": kinds.BigValueTextMode.VALUE_AND_NAME}
    panel = (
        _begun(stat.Panel(), title, meaning)
        .unit(unit)
        .reduce_options(_LATEST)
        .graph_mode(kinds.BigValueGraphMode.NONE)
        .color_mode(kinds.BigValueColorMode.VALUE)
        .text_mode(text.get(options.get("names", ""), kinds.BigValueTextMode.AUTO))
        .no_value(options.get("none", "no data"))
    )
    if "levels" in options:
        panel = panel.thresholds(_thresholds(options["levels"]))
    if "decimals" in options:
        panel = panel.decimals(options["decimals"])
    return _asking(_coloured(panel, options.get("colours", {})), [query], instant=True)


def heatmap_of(title: str, meaning: str, unit: str, query: Q, *, none: str) -> Any:
    """A histogram over time, from the buckets of a counter; the colour says how many."""
    target = prometheus.Dataquery().expr(query.expr).ref_id("A").datasource(DATASOURCE).range()
    colour = heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Oranges").steps(64)
    return (
        _begun(heatmap.Panel(), title, meaning)
        .no_value(none)
        .calculate(False)
        .color(colour)
        .y_axis(heatmap.YAxisConfig().unit(unit))
        .with_target(target.format(PromQueryFormat.HEATMAP).legend_format(query.legend))
    )


def alerts_of(title: str, meaning: str, *, named: str, labels: str) -> Any:
    """The alerts that fire or wait to, of any data source that Grafana knows; a click on one opens its runbook."""
    states = {"firing": True, "pending": True, "error": True, "noData": False, "normal": False}
    options = {
        "viewMode": "list", "groupMode": "default", "groupBy": [], "maxItems": 20, "sortOrder": 3,
        "dashboardAlerts": False, "alertName": named, "alertInstanceLabelFilter": labels, "stateFilter": states,
    }  # fmt: skip
    return _AlertList(options).title(title).description(meaning)


class _AlertList(stat.Panel):  # type: ignore[misc]  # the SDK has no types
    """A kind of panel for which the SDK has no builder."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__()
        self._list = dict(options)

    def build(self) -> Any:
        made = super().build()
        made.type_val, made.options, made.field_config, made.targets = "alertlist", self._list, None, []
        return made


def fill(title: str, meaning: str, query: Q, **options: Any) -> Any:
    """How full something is, from 0 to 1. Options: ``levels`` from which on that is bad; ``none``."""
    return time_series(title, meaning, query, unit=SHARE, most=1, **options)


def lanes(title: str, meaning: str, *queries: Q, on: str, colours: Mapping[str, str], none: str) -> Any:
    """A lane for each series of 0 and 1: coloured, and called ``on``, while it is 1; ``none`` where there is none."""
    panel = _timeline(title, meaning, {"0": ("–", NO_COLOUR), "1": (on, None)}, has_legend=False).fill_opacity(90)
    return _asking(_coloured(panel.no_value(none), colours), queries)


def states_of(title: str, meaning: str, query: Q, states: Mapping[str, tuple[str, str]]) -> Any:
    """A lane for each series, whose values have a name and a colour."""
    return _asking(_timeline(title, meaning, states, has_legend=True).fill_opacity(70), [query])


def _timeline(title: str, meaning: str, states: Mapping[str, tuple[str, str | None]], *, has_legend: bool) -> Any:
    legend = common.VizLegendOptions().show_legend(has_legend).display_mode(kinds.LegendDisplayMode.LIST)
    panel = _begun(statetimeline.Panel(), title, meaning).unit(COUNT)
    panel = panel.merge_values(True).show_value(kinds.VisibilityMode.NEVER).row_height(0.8).line_width(0).legend(legend)
    panel = panel.tooltip(common.VizTooltipOptions().mode(kinds.TooltipDisplayMode.SINGLE))
    return panel.mappings([_mapping(states)])


def bars(title: str, meaning: str, unit: str, query: Q, *, none: str, colours: Mapping[str, str]) -> Any:
    """A horizontal bar for each series, over the whole range."""
    panel = (
        _begun(bargauge.Panel(), title, meaning)
        .unit(unit)
        .decimals(1)
        .orientation(kinds.VizOrientation.HORIZONTAL)
        .display_mode(kinds.BarGaugeDisplayMode.BASIC)
        .show_unfilled(True)
        .min(0)
        .no_value(none)
        .reduce_options(_LATEST)
    )
    return _asking(_coloured(panel, colours), [query], instant=True)


@dataclass(frozen=True)
class Column:
    """A column of a table: a label, or the value of the query in the same place as its name is given."""

    title: str
    unit: str = "string"
    levels: Levels | None = None
    link: tuple[str, str] | None = None  # title, URL
    also: tuple[str, str] | None = None  # a second one: a click then asks which


def table_of(title: str, meaning: str, labels: Mapping[str, Column], values: Iterable[tuple[str, Column]]) -> Any:
    """Instant queries side by side, joined by the labels they share; sorted by the first of them, greatest first."""
    values = list(values)
    panel = _begun(table.Panel(), title, meaning).unit("short").no_value("–")
    panel = panel.cell_options(kinds.TableAutoCellOptions())
    refs = [chr(ord("A") + index) for index in range(len(values))]
    for ref, (expr, _) in zip(refs, values):
        panel = panel.with_target(
            prometheus.Dataquery()
            .expr(expr)
            .instant()
            .format(PromQueryFormat.TABLE)
            .legend_format("__auto")
            .ref_id(ref)
            .datasource(DATASOURCE)
        )
    fields = {**labels, **{f"Value #{ref}": column for ref, (_, column) in zip(refs, values)}}
    if len(values) == 1:
        fields = {**labels, "Value": values[0][1]}
    panel = panel.with_transformation(model.DataTransformerConfig(id_val="merge", options={})).with_transformation(
        model.DataTransformerConfig(
            id_val="organize",
            options={
                "excludeByName": {"Time": True},
                "indexByName": {name: index for index, name in enumerate(fields)},
                "renameByName": {name: column.title for name, column in fields.items()},
            },
        )
    )
    for column in fields.values():
        panel = panel.override_by_name(column.title, _column_properties(column))
    return panel.sort_by([common.TableSortByFieldState().display_name(values[0][1].title).desc(True)])


def _column_properties(column: Column) -> list[Any]:
    properties = [model.DynamicConfigValue(id_val="unit", value=column.unit)]
    if column.levels:
        steps = [{"value": value, "color": colour} for value, colour in column.levels.steps]
        properties += [
            model.DynamicConfigValue(id_val="thresholds", value={"mode": "absolute", "steps": steps}),
            model.DynamicConfigValue(id_val="custom.cellOptions", value={"type": "color-text"}),
        ]
    if column.link:
        links = [{"title": title, "url": url} for title, url in filter(None, (column.link, column.also))]
        properties.append(model.DynamicConfigValue(id_val="links", value=links))
    return properties


def _begun(panel: Any, title: str, meaning: str) -> Any:
    return panel.title(title).description(meaning).datasource(DATASOURCE)


def _asking(panel: Any, queries: Iterable[Q], *, instant: bool = False) -> Any:
    for index, query in enumerate(queries):
        target = prometheus.Dataquery().expr(query.expr).ref_id(chr(ord("A") + index)).datasource(DATASOURCE)
        target = target.legend_format(query.legend or "__auto")
        if query.interval:
            target = target.interval(query.interval)
        panel = panel.with_target(target.instant() if instant else target.range())
    return panel


def _coloured(panel: Any, colours: Mapping[str, str]) -> Any:
    for name, colour in colours.items():
        fixed = model.FieldColor(mode=model.FieldColorModeId.FIXED, fixed_color=colour)
        panel = panel.override_by_name(name, [model.DynamicConfigValue(id_val="color", value=fixed)])
    return panel


def _legend(*, stacked: bool) -> Any:
    """Below the lines; beside areas, which are many and need the height."""
    return (
        common.VizLegendOptions()
        .show_legend(True)
        .display_mode(kinds.LegendDisplayMode.TABLE if stacked else kinds.LegendDisplayMode.LIST)
        .placement(kinds.LegendPlacement.RIGHT if stacked else kinds.LegendPlacement.BOTTOM)
        .calcs(["max"] if stacked else ["lastNotNull", "max"])
    )


def _thresholds(levels: Levels) -> Any:
    steps = [model.Threshold(value=value, color=colour) for value, colour in levels.steps]
    return dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(steps)


def _mapping(texts: Mapping[str, tuple[str, str | None]]) -> Any:
    results = {
        value: model.ValueMappingResult(text=text, color=colour, index=index)
        for index, (value, (text, colour)) in enumerate(texts.items())
    }
    return model.ValueMap(options=results)
