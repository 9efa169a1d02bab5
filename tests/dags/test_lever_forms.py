"""The forms of the DAGs that people trigger by hand: what they propose, and what they flag."""

from __future__ import annotations

import pytest
from airflow.sdk import Param
from airflow.sdk.exceptions import ParamValidationError

from muster.airflow import coordination_levers, isolation, placement, topics
from muster.settings.clusters import load_clusters
from tests.dags.conftest import WriteClusters

pytestmark = pytest.mark.airflow

FORMS = {
    "isolate": (isolation.form, ["cluster", "consumer", "reason"]),
    "pin": (placement.pin_form, ["cluster", "topic", "partitions", "consumer", "reason"]),
    "unpin": (placement.unpin_form, ["cluster", "topic", "partitions", "reason"]),
    "exclude": (placement.exclusion_form, ["cluster", "consumer", "topic", "reason"]),
    "pause": (coordination_levers.form, ["cluster", "reason"]),
}


@pytest.fixture
def clusters(write_clusters: WriteClusters):
    write_clusters("c1", count=2, topics={"names": ["flights", "crews"], "patterns": ["x.*"]})
    return load_clusters()


@pytest.mark.parametrize("name", FORMS)
def test_a_form_has_its_fields_and_every_one_must_be_filled(name, clusters):
    make, fields = FORMS[name]
    form = make(clusters)
    assert list(form) == fields
    for field in set(fields) - {"cluster"}:
        with pytest.raises(ParamValidationError):
            form[field].resolve()
        with pytest.raises(ParamValidationError):
            form[field].resolve("")


def test_what_is_configured_is_proposed_and_other_clusters_are_refused(clusters):
    form = placement.pin_form(clusters)
    assert form["cluster"].resolve() == "c1", "the only one is the default"
    with pytest.raises(ParamValidationError):
        form["cluster"].resolve("c2")
    assert form["topic"].schema["examples"] == ["crews", "flights"]
    assert form["topic"].resolve("x-1") == "x-1", "what a pattern finds may be named too"
    assert form["consumer"].schema["examples"] == ["c1-1", "c1-2"]
    assert form["consumer"].resolve("foreign") == "foreign"


@pytest.mark.parametrize("text", ["0", "0-3,7", " 1 , 3 - 4"])
def test_lists_of_partitions_are_taken(text, clusters):
    field: Param = placement.pin_form(clusters)["partitions"]
    assert field.resolve(text) == text


@pytest.mark.parametrize("text", ["a", "1,", "-1", "1--2", "all"])
def test_other_texts_are_flagged_before_the_run(text, clusters):
    with pytest.raises(ParamValidationError):
        placement.pin_form(clusters)["partitions"].resolve(text)


def test_without_a_cluster_the_form_says_so(write_clusters, tmp_path):
    write_clusters("c1").write_text("clusters: {}")
    assert placement.pin_form(load_clusters())["cluster"].schema["enum"] == ["(none)"]


def test_an_assignor_is_chosen_with_options_or_taken_back(clusters):
    form = coordination_levers.assignor_form(clusters)
    assert list(form) == ["cluster", "assignor", "options", "reason"]
    assert form["assignor"].resolve() == coordination_levers.FROM_FILE
    assert "load-aware" in form["assignor"].schema["examples"]
    assert form["assignor"].resolve("my.Own") == "my.Own"
    assert form["options"].resolve() == {}
    assert form["options"].resolve({"budget": 3}) == {"budget": 3}
    with pytest.raises(ParamValidationError):
        form["options"].resolve("budget")
    with pytest.raises(ParamValidationError):
        form["reason"].resolve()


def test_topics_are_named_or_matched(clusters):
    form = topics.form(clusters)
    assert list(form) == ["cluster", "topic", "kind", "reason"]
    assert form["kind"].resolve() == "name"
    with pytest.raises(ParamValidationError):
        form["kind"].resolve("regex")
