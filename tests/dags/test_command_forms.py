"""The forms of the DAGs that people trigger by hand: what they propose, and what they flag."""

from __future__ import annotations

import pytest
from airflow.sdk import Param
from airflow.sdk.exceptions import ParamValidationError

from muster.airflow.command_dags import FROM_FILE, form
from muster.commands.table import COMMANDS
from muster.settings.clusters import load_clusters
from tests.dags.conftest import WriteClusters

pytestmark = pytest.mark.airflow

FORMS = {
    "isolate": ["cluster", "consumer", "reason"],
    "restore": ["cluster", "consumer", "reason"],
    "drain": ["cluster", "consumer", "reason"],
    "undrain": ["cluster", "consumer", "reason"],
    "pin": ["cluster", "topic", "partitions", "consumer", "reason"],
    "unpin": ["cluster", "topic", "partitions", "reason"],
    "exclude": ["cluster", "consumer", "topic", "reason"],
    "include": ["cluster", "consumer", "topic", "reason"],
    "pause": ["cluster", "reason"],
    "skip-record": ["cluster", "topic", "partition", "offset", "reason"],
}


@pytest.fixture
def clusters(write_clusters: WriteClusters):
    write_clusters("c1", count=2, topics={"names": ["flights", "crews"], "patterns": ["x.*"]})
    return load_clusters()


@pytest.mark.parametrize("name", FORMS)
def test_a_form_has_its_fields_and_every_one_must_be_filled(name, clusters):
    fields = FORMS[name]
    found = form(COMMANDS[name], clusters)
    assert list(found) == fields
    for field in set(fields) - {"cluster"}:
        with pytest.raises(ParamValidationError):
            found[field].resolve()
        with pytest.raises(ParamValidationError):
            found[field].resolve("")


def test_form_proposes_configured_values_and_refuses_other_clusters(clusters):
    pin = form(COMMANDS["pin"], clusters)
    assert pin["cluster"].resolve() == "c1", "the only one is the default"
    with pytest.raises(ParamValidationError):
        pin["cluster"].resolve("c2")
    assert pin["topic"].schema["examples"] == ["crews", "flights"]
    assert pin["topic"].resolve("x-1") == "x-1", "what a pattern finds may be named too"
    assert pin["consumer"].schema["examples"] == ["c1-1", "c1-2"]
    assert pin["consumer"].resolve("foreign") == "foreign"


@pytest.mark.parametrize("text", ["0", "0-3,7", " 1 , 3 - 4"])
def test_lists_of_partitions_are_taken(text, clusters):
    field: Param = form(COMMANDS["pin"], clusters)["partitions"]
    assert field.resolve(text) == text


@pytest.mark.parametrize("text", ["a", "1,", "-1", "1--2", "all"])
def test_other_texts_are_flagged_before_the_run(text, clusters):
    with pytest.raises(ParamValidationError):
        form(COMMANDS["pin"], clusters)["partitions"].resolve(text)


def test_form_shows_that_there_is_no_cluster(write_clusters, tmp_path):
    write_clusters("c1").write_text("clusters: {}")
    assert form(COMMANDS["pin"], load_clusters())["cluster"].schema["enum"] == ["(none)"]


def test_an_assignor_is_chosen_with_options_or_taken_back(clusters):
    assignor = form(COMMANDS["assignor"], clusters)
    assert list(assignor) == ["cluster", "assignor", "options", "reason"]
    assert assignor["assignor"].resolve() == FROM_FILE
    assert "load-aware" in assignor["assignor"].schema["examples"]
    assert assignor["assignor"].resolve("my.Own") == "my.Own"
    assert assignor["options"].resolve() == {}
    assert assignor["options"].resolve({"budget": 3}) == {"budget": 3}
    with pytest.raises(ParamValidationError):
        assignor["options"].resolve("budget")
    with pytest.raises(ParamValidationError):
        assignor["reason"].resolve()


def test_topics_are_named_or_matched(clusters):
    topics = form(COMMANDS["subscribe"], clusters)
    assert list(topics) == ["cluster", "topic", "kind", "reason"]
    assert topics["kind"].resolve() == "name"
    with pytest.raises(ParamValidationError):
        topics["kind"].resolve("regex")
