"""SASL (DIGEST-MD5) to a real ZooKeeper that insists on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from devstack.secured import SecureZooKeeper
from devstack.zookeeper import ZooKeeper
from muster.core.model import TopicSnapshot
from muster.doctor.findings import CheckOutcome, Part
from muster.doctor.zookeeper import zookeeper_answers
from muster.edges.zookeeper import TopicStore, ZooKeeperError
from muster.settings.connections import ZooKeeperSettings

pytest.importorskip("puresasl", reason="kazoo's SASL needs pure-sasl")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureZooKeeper]:
    """Lets in only the user `muster`."""
    server = SecureZooKeeper(tmp_path_factory.mktemp("sasl") / "zookeeper", {"muster": "secret"})
    server.start()
    yield server
    server.stop()


def settings(server: ZooKeeper, password: str) -> ZooKeeperSettings:
    return ZooKeeperSettings.model_validate(
        {
            "hosts": server.address,
            "operation_timeout": 5.0,
            "sasl_mechanism": "DIGEST-MD5",
            "username": "muster",
            "password": password,
        }
    )


def test_user_with_the_password_reads_and_writes(guarded: SecureZooKeeper) -> None:
    with TopicStore(settings(guarded, "secret"), "c") as store:
        assert store.create_topic("flights", "h:9092", "g")
        assert isinstance(store.snapshots()["flights"], TopicSnapshot)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_refusal_points_at_username_and_password(guarded: SecureZooKeeper) -> None:
    with (
        pytest.raises(
            ZooKeeperError, match=f"{guarded.address}.*refused as user 'muster'.*username and password"
        ),
        TopicStore(settings(guarded, "x"), "c"),
    ):
        pass
    anybody = ZooKeeperSettings(hosts=guarded.address, operation_timeout=5.0)
    refused = "refused without a user.*set username and password"
    with pytest.raises(ZooKeeperError, match=refused), TopicStore(anybody, "c"):
        pass
    digest = settings(guarded, "secret").model_copy(update={"sasl_mechanism": None, "auth_scheme": "digest"})
    with (
        pytest.raises(ZooKeeperError, match="'sasl_mechanism' in place of 'auth_scheme'"),
        TopicStore(digest, "c"),
    ):
        pass


def test_doctor_names_a_zookeeper_without_sasl(zookeeper_server: ZooKeeper) -> None:
    short = settings(zookeeper_server, "secret").model_copy(update={"operation_timeout": 2.0})
    check = zookeeper_answers(Part("zookeeper"), short)
    assert check.outcome is CheckOutcome.FAILED
    assert check.found == f"{zookeeper_server.address} answers, and does not speak SASL DIGEST-MD5"
    assert "take sasl_mechanism, login and password out" in check.step


def test_kerberos_needs_its_package() -> None:
    kerberos = ZooKeeperSettings(hosts="h:1", sasl_mechanism="GSSAPI")
    with pytest.raises(ZooKeeperError, match=r"pip install 'pure-sasl\[gssapi\]'"):
        TopicStore(kerberos, "c")
