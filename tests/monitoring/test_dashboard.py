"""The Grafana dashboard as a file: what Grafana would stumble over. What its queries find is in `test_scraped`."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

from tests.monitoring.grafana import DASHBOARD, panels, queries


def dashboard() -> dict[str, Any]:
    return dict(json.loads(DASHBOARD.read_text()))


def test_panels_have_ids_of_their_own_and_do_not_lie_over_each_other() -> None:
    ids = [panel["id"] for panel in dashboard()["panels"]]
    assert len(ids) == len(set(ids))
    for one, other in combinations([panel["gridPos"] for panel in dashboard()["panels"]], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below, (one, other)
        assert one["x"] + one["w"] <= 24


def test_every_query_goes_to_the_chosen_data_source_and_cluster() -> None:
    for panel in panels(dashboard()):
        assert panel["datasource"]["uid"] == "${datasource}", panel["title"]
        for target in panel["targets"]:
            assert target["datasource"]["uid"] == "${datasource}", panel["title"]
            assert 'cluster_name=~"$cluster"' in target["expr"], panel["title"]


def test_the_variables_are_those_that_the_queries_use() -> None:
    variables = {each["name"]: each for each in dashboard()["templating"]["list"]}
    assert variables.keys() == {"datasource", "cluster"}
    assert variables["cluster"]["datasource"]["uid"] == "${datasource}"
    assert variables["cluster"]["query"]["query"] == "label_values(muster_cluster_info, cluster_name)"


def test_grafana_dashboard_can_be_imported_anywhere() -> None:
    found = dashboard()
    assert found["id"] is None
    assert found["uid"] == "muster"
    assert found["schemaVersion"] >= 39
    assert len(queries(found)) > 20
    assert Path(DASHBOARD).read_text().endswith("}\n")
