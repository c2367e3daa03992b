"""The variables of every dashboard: data source, job, host, scheduler's names, run, rank."""

from __future__ import annotations

from typing import Any

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models.common import DataSourceRef
from grafana_foundation_sdk.models.dashboard import VariableOption, VariableRefresh, VariableSort

ANY, ANY_OR_NONE = ".+", ".*"
DATASOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")

JOBS = "label_values(trainprobe_build_info, job)"
HOSTS = 'label_values(trainprobe_build_info{job=~"$job"}, instance)'
NAMES = {
    "namespace": ("Namespace", 'label_values(trainprobe_run_info{job=~"$job",instance=~"$host"}, namespace)'),
    "pod": ("Pod", 'label_values(trainprobe_run_info{job=~"$job",instance=~"$host",namespace=~"$namespace"}, pod)'),
    "slurm_job": ("Slurm job", 'label_values(trainprobe_run_info{job=~"$job",instance=~"$host"}, slurm_job)'),
}
"""What schedulers call runs: they narrow the choice of runs, and a run that has none of them stays with All."""
_NAMED = 'namespace=~"$namespace",pod=~"$pod",slurm_job=~"$slurm_job"'
RUNS = f'label_values(trainprobe_run_info{{job=~"$job",instance=~"$host",{_NAMED}}}, run)'
USERS = 'label_values(trainprobe_run_info{job=~"$job"}, user)'
PRICE = "2.50"
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
        *(_any_of(_query(name, *shown), ANY_OR_NONE) for name, shown in NAMES.items()),
        run if one_run else _any_of(run),
        _any_of(_query("rank", "Rank", RANKS[one_run], VariableSort.NUMERICAL_ASC)),
    ]


def account_variables() -> list[Any]:
    """Of a dashboard about money: whose jobs, and what a GPU costs for an hour."""
    return [
        dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"),
        _any_of(_query("job", "Job", JOBS)),
        _any_of(_query("user", "User", USERS), ANY_OR_NONE),
        dashboard.TextBoxVariable("price").label("Price of a GPU-hour").default_value(PRICE),
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


def _any_of(variable: Any, everything_is: str = ANY) -> Any:
    everything = VariableOption(selected=True, text=["All"], value=["$__all"])
    return variable.multi(True).include_all(True).all_value(everything_is).current(everything)
