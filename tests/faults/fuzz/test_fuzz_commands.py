"""Whatever a person puts into the DAGs' forms, or types after `muster`: it is done as said, or refused in words.

Actions, forms and the command line are the real ones; ZooKeeper and Consul are in memory.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
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

from muster.airflow.command_dags import FROM_FILE, form, from_form
from muster.cli.main import main
from muster.commands.command import CommandError
from muster.commands.table import COMMANDS
from muster.commands.target import Target
from muster.core.model import Consumer, ConsumerStatus, FailingRecord
from muster.core.wire import WireError
from muster.edges.consul import ConsulError
from muster.settings.cluster_settings import ClusterSettings
from muster.settings.clusters import SettingsError, load_clusters
from tests.faults.fuzz.cluster import Cluster
from tests.faults.fuzz.malformed import HUGE_TEXT, odd_texts, odd_values
from tests.faults.fuzz.tally import count, examples
from tests.support.sources import opener

pytestmark = pytest.mark.airflow

FILE = """
clusters:
  c: {consul_service: consumers, group_id: g, topics: [t, u], consumers: {count: 2, handler: a.b}}
  broken: {consul_service: other}
"""
GOOD: dict[str, Any] = {
    **{"consumer": "a", "topic": "t", "partitions": "0-1", "reason": "because"},
    **{"pattern": False, "assignor": "range", "options": {}, "to": "earliest", "preview": False},
    **{"partition": "0", "offset": "7", "group": "old", "error": "no"},
}
REFUSALS = (CommandError, SettingsError, WireError, ConsulError)

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
        FROM_FILE,
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
    for each in cluster.consumers.values():
        each.failing["t", 0] = FailingRecord(7, "ValueError: no", 8, parked=True)
    cluster.discovery.overrides.pin("u", 0, "a", by="ann", why="r", at=1.0)
    cluster.discovery.overrides.exclude("b", "u", by="ann", why="r", at=1.0)
    cluster.discovery.overrides.isolate("b", by="ann", why="r", at=1.0)
    cluster.key("pinned/t/x", b"rotten")
    return cluster


@contextmanager
def put_in_place(cluster: Cluster) -> Iterator[None]:
    def of(settings: ClusterSettings, _: object, own_rights: bool = False) -> Target:
        return Target(
            settings,
            cluster.discovery,
            lambda: nullcontext(cluster.store),
            poll=poll,
            own_rights=own_rights,
        )

    def poll(consumers: Iterable[Consumer], *_: object, **__: object) -> dict[str, ConsumerStatus]:
        return {each.id: cluster.consumers[each.id].status() for each in consumers}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Target, "of", of)
        yield


def unharmed(cluster: Cluster, keys: dict[str, Any]) -> None:
    """No key is lost but the one that was asked for, and the topics can still be planned."""
    assert len(keys.keys() - cluster.servers.keys.keys()) <= 1
    cluster.run()
    assert not cluster.errors.keys() & {"t", "u"}


@examples(600)
@given(
    st.sampled_from(sorted(COMMANDS)),
    st.dictionaries(st.sampled_from(sorted(GOOD)), texts | odd_values | options, min_size=1, max_size=2),
)
def test_any_parameter_of_any_form(name: str, odd: dict[str, Any]) -> None:
    fields = form(load_clusters()["c"])
    taken = {each.name for each in COMMANDS[name].fields} | {"reason"}
    taken |= {"options"} if "assignor" in taken else set()
    untouched = {key: field.value for key, field in fields.items()}
    params = {**untouched, **{key: GOOD[key] for key in taken & GOOD.keys()}, "command": name, **odd}
    count("DAG parameter", len(odd.keys() & fields.keys()))
    accepted = True
    for field in fields:
        try:
            fields[field].resolve(params[field])
        except ParamValidationError:
            accepted = False  # flagged before the run; but a run that is triggered otherwise may have it all the same
    cluster = around()
    if name == "resume":
        cluster.discovery.overrides.pause(by="ann", why="r", at=1.0)
    keys = dict(cluster.servers.keys)
    notes: list[str] = []
    context = {
        "params": params,
        "dag_run": SimpleNamespace(triggering_user_name="ann", dag_id="d", run_id="r"),
        "run_id": "r",
        "ti": SimpleNamespace(
            dag_id="muster_commands__c", xcom_push=lambda _, value: notes.append(json.dumps(value))
        ),
        "task": SimpleNamespace(outlets=[]),
    }
    with put_in_place(cluster):
        try:
            values = from_form("c", context)  # type: ignore[arg-type]
        except REFUSALS as refusal:
            assert 20 < len(str(refusal)) < 3_000, "what is wrong, in words"
            assert cluster.servers.keys == keys, "nothing was written"
            assert len(notes) == 1, "the run's note says why"
        else:
            assert len(notes) == 1, "the run's note"
            if params["preview"]:
                assert (values.keys(), cluster.servers.keys) == ({"preview"}, keys)
                return
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
    servers = opener(cluster.store, cluster.discovery, cluster.poll)
    with put_in_place(cluster):
        done = CliRunner().invoke(main, line, obj=servers)
    assert done.exit_code in {0, 2, 3, 4}, (line, done.output, done.exception)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    if done.exit_code:
        assert "Error: " in done.output, done.output
        assert cluster.servers.keys == keys, "nothing was written"
    assert "Traceback" not in done.output
    unharmed(cluster, keys)
