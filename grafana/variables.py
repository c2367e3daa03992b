"""The variables of every dashboard: data source, job, host, run, rank."""

from __future__ import annotations

from typing import Any

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models.common import DataSourceRef
from grafana_foundation_sdk.models.dashboard import VariableOption, VariableRefresh, VariableSort

ANY = ".+"
DATASOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")

JOBS = "label_values(trainprobe_build_info, job)"
HOSTS = 'label_values(trainprobe_build_info{job=~"$job"}, instance)'
RUNS = 'label_values(trainprobe_run_info{job=~"$job",instance=~"$host"}, run)'
RANKS = {
    True: 'label_values(trainprobe_run_info{job=~"$job",instance=~"$host",run="$run"}, rank)',
    False: 'label_values(trainprobe_run_info{job=~"$job",instance=~"$host",run=~"$run"}, rank)',
}


def variables(*, one_run: bool) -> list[Any]:
    """``one_run``: the dashboard shows a single run, so ``run`` has one value and no All."""
    run = _query("run", "Run", RUNS)
    return [
        dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"),
        _any_of(_query("job", "Job", JOBS)),
        _any_of(_query("host", "Host", HOSTS)),
        run if one_run else _any_of(run),
        _any_of(_query("rank", "Rank", RANKS[one_run], VariableSort.NUMERICAL_ASC)),
    ]


def _query(name: str, label: str, query: str, sort: Any = VariableSort.ALPHABETICAL_ASC) -> Any:
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(DATASOURCE)
        .query({"qryType": 1, "query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery"})
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(sort)
    )


def _any_of(variable: Any) -> Any:
    everything = VariableOption(selected=True, text=["All"], value=["$__all"])
    return variable.multi(True).include_all(True).all_value(ANY).current(everything)
