"""SASL (DIGEST-MD5) to a real ZooKeeper that insists on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from devstack.secured import SecureZooKeeper
from muster.core.model import TopicSnapshot
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


def settings(server: SecureZooKeeper, password: str) -> ZooKeeperSettings:
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
