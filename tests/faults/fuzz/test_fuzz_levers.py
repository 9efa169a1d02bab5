"""Whatever a person puts into the DAGs' forms, or types after `muster`: it is done as said, or refused in words.

Levers, forms and commands are the real ones; ZooKeeper and Consul are in memory.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

os.environ.setdefault(
    "AIRFLOW_HOME", tempfile.mkdtemp(prefix="muster-fuzz-")
)  # Airflow reads it when it is imported

from airflow.sdk.exceptions import ParamValidationError

from muster.airflow import coordination_levers as coordination
from muster.airflow import isolation, lever_forms, placement, topics
from muster.cli import levers as commands
from muster.cli.edges import Edges
from muster.cli.main import main
from muster.core.wire import WireError
from muster.edges.consul import ConsulError
from muster.levers.outcome import LeverError
from muster.settings.clusters import SettingsError, load_clusters
from tests.faults.fuzz.cluster import Cluster
from tests.faults.fuzz.malformed import HUGE_TEXT, odd_texts, odd_values
from tests.faults.fuzz.tally import count, examples

pytestmark = pytest.mark.airflow

FILE = """
clusters:
  c: {consul_service: consumers, group_id: g, topics: [t, u], consumers: {count: 2, handler: a.b}}
  broken: {consul_service: other}
"""
GOOD: dict[str, Any] = {
    **{"cluster": "c", "consumer": "a", "topic": "t", "partitions": "0-1", "reason": "because"},
    **{"kind": "name", "assignor": "range", "options": {}},
}
LEVERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], tuple[str, ...]]] = {
    "isolate": (isolation.isolate, isolation.form, ("consumer",)),
    "restore": (isolation.restore, isolation.form, ("consumer",)),
    "pin": (placement.pin, placement.pin_form, ("topic", "partitions", "consumer")),
    "unpin": (placement.unpin, placement.unpin_form, ("topic", "partitions")),
    "exclude": (placement.exclude, placement.exclusion_form, ("consumer", "topic")),
    "include": (placement.include, placement.exclusion_form, ("consumer", "topic")),
    "subscribe": (topics.subscribe, topics.form, ("topic", "kind")),
    "unsubscribe": (topics.unsubscribe, topics.form, ("topic", "kind")),
    "pause": (coordination.pause, coordination.form, ()),
    "resume": (coordination.resume, coordination.form, ()),
    "rebalance": (coordination.rebalance, coordination.form, ()),
    "assignor": (coordination.assignor, coordination.assignor_form, ("assignor", "options")),
}
REFUSALS = (LeverError, SettingsError, WireError, ConsulError)

near = st.sampled_from(
    (
        "0",
        "0-2",
        "2-0",
        " 0 , 1 ",
        "1,",
        "-1",
        "0-99999999999",
        "0-9999999999",
        "٣",
        "a",
        "b",
        "c",
        "t",
        "broken",
        "c-1",
        "c-2",
        "0" * 11,
        "pattern",
        "t.*",
        "(a+)+(",
        "sticky",
        coordination.FROM_FILE,
    )
)
texts = st.one_of(near, odd_texts, st.just(HUGE_TEXT))
options = st.dictionaries(st.sampled_from(("by_zone", "budget")) | odd_texts, odd_values, max_size=2)


@pytest.fixture(scope="module", autouse=True)
def clusters_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("fuzz") / "clusters.yaml"
    path.write_text(FILE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MUSTER_CLUSTERS", str(path))
        yield path


def around() -> Cluster:
    """Two topics that are Stable, one pin, one exclusion, one isolation, one key that is rotten."""
    cluster = Cluster({"t": 2, "u": 2}, good=("t", "u"))
    cluster.settles()
    cluster.discovery.pin("u", 0, "a", by="ann", why="r", at=1.0)
    cluster.discovery.exclude("b", "u", by="ann", why="r", at=1.0)
    cluster.discovery.isolate("b", by="ann", why="r", at=1.0)
    cluster.key("pinned/t/x", b"rotten")
    return cluster


@contextmanager
def put_in_place(cluster: Cluster, module: Any, discovery: str, store: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, discovery, lambda _: cluster.discovery)
        patch.setattr(module, store, lambda _: cluster.store)
        yield


def unharmed(cluster: Cluster, keys: dict[str, Any]) -> None:
    """No key is lost but the one that was asked for, and the topics can still be planned."""
    assert len(keys.keys() - cluster.servers.keys.keys()) <= 1
    cluster.run()
    assert not cluster.errors.keys() & {"t", "u"}


@examples(600)
@given(
    st.sampled_from(sorted(LEVERS)),
    st.dictionaries(st.sampled_from(sorted(GOOD)), texts | odd_values | options, min_size=1, max_size=2),
)
def test_any_parameter_of_any_form(lever: str, odd: dict[str, Any]) -> None:
    pull, make_form, fields = LEVERS[lever]
    params = {**GOOD, **odd}
    form = make_form(load_clusters())
    assert form.keys() == {"cluster", "reason", *fields}
    count("DAG parameter", len(odd.keys() & form.keys()))
    accepted = True
    for name in form:
        try:
            form[name].resolve(params[name])
        except ParamValidationError:
            accepted = False  # flagged before the run; but a run that is triggered otherwise may have it all the same
    cluster = around()
    if lever == "resume":
        cluster.discovery.pause(by="ann", why="r", at=1.0)
    keys = dict(cluster.servers.keys)
    notes: list[str] = []
    context = {
        "params": params,
        "dag_run": SimpleNamespace(triggering_user_name="ann", dag_id="d", run_id="r"),
        "run_id": "r",
        "ti": SimpleNamespace(
            dag_id=f"muster_{lever}", xcom_push=lambda _, value: notes.append(json.dumps(value))
        ),
        "task": SimpleNamespace(outlets=[]),
    }
    with put_in_place(cluster, lever_forms, "discovery", "store"):
        try:
            values = pull(context)
        except REFUSALS as refusal:
            assert 20 < len(str(refusal)) < 3_000, "what is wrong, in words"
            assert cluster.servers.keys == keys, "nothing was written"
            assert not notes
        else:
            assert len(notes) == 1, "the run's note"
            assert values["cluster"] == "c"
            assert values["reason"] == str(params["reason"]).strip()
            assert cluster.servers.keys != keys, f"accepted {accepted}, but nothing was done"
    unharmed(cluster, keys)


def command_lines() -> st.SearchStrategy[list[str]]:
    arguments = {"isolate": 1, "restore": 1, "pin": 3, "unpin": 2, "exclude": 2, "include": 2}
    good = {
        "isolate": ["a"],
        "restore": ["b"],
        "pin": ["t", "0", "a"],
        "unpin": ["u", "0"],
        "exclude": ["a", "t"],
        "include": ["b", "u"],
    }
    option = st.sampled_from(
        ("--cluster", "--reason", "--by", "--json", "--nonsense", "--", "-h", "--reason=")
    )
    supposing = st.sampled_from(
        ("--with", "--without", "--partitions", "--assignor", "--assignor-option", "--all")
    )

    @st.composite
    def line(draw: st.DrawFn) -> list[str]:
        name = draw(st.sampled_from((*arguments, "plan", "status", "nonsense")))
        if name in {"plan", "status", "nonsense"}:
            options = []
            for _ in range(draw(st.integers(1, 2))):
                value = draw(texts)
                prefix = draw(
                    st.sampled_from(("", "t=", "a:", "a:weight=", "a:topics=", "limit=", "a=", "x:priority="))
                )
                options += [draw(supposing), prefix + value]
            return [name, "--cluster", draw(st.sampled_from(("c", "c", "c", "broken", "../c"))), *options]
        words = list(good[name])
        words[draw(st.integers(0, len(words) - 1))] = draw(texts)
        more = [draw(option), draw(texts)] if draw(st.booleans()) else []
        return [name, "--cluster", "c", "--reason", "because", *more, *words]

    return line()


@examples(250)
@given(command_lines())
def test_any_command_line(line: list[str]) -> None:
    count("command line")
    cluster = around()
    keys = dict(cluster.servers.keys)

    @contextmanager
    def opener(_: Any) -> Iterator[Edges]:
        yield Edges(cluster.store, cluster.discovery, poll=cluster.poll)

    with put_in_place(cluster, commands, "_discovery", "_store"):
        done = CliRunner().invoke(main, line, obj=opener)
    assert done.exit_code in {0, 2, 3, 4}, (line, done.output, done.exception)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    if done.exit_code:
        assert "Error: " in done.output, done.output
        assert cluster.servers.keys == keys, "nothing was written"
    assert "Traceback" not in done.output
    unharmed(cluster, keys)
