"""SASL (DIGEST-MD5) to a real ZooKeeper that insists on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from devstack.zookeeper import ZooKeeper
from muster.core.model import TopicSnapshot
from muster.edges.zookeeper import TopicStore, ZooKeeperError
from muster.settings.connections import ZooKeeperSettings

pytest.importorskip("puresasl", reason="kazoo's SASL needs pure-sasl")


class GuardedZooKeeper(ZooKeeper):
    """Lets in nobody but the user `muster`."""

    def prepare(self) -> None:
        super().prepare()
        login = "org.apache.zookeeper.server.auth.DigestLoginModule"
        self._jaas.write_text(f'Server {{ {login} required user_muster="secret"; }};', encoding="utf-8")
        settings = {
            "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            "enforce.auth.enabled": "true",
            "enforce.auth.schemes": "sasl",
        }
        with (self.data_dir / "zoo.cfg").open("a", encoding="utf-8") as file:
            file.writelines(f"{key}={value}\n" for key, value in settings.items())

    def command(self) -> Sequence[str | Path]:
        java, *rest = super().command()
        return [java, f"-Djava.security.auth.login.config={self._jaas}", *rest]

    @property
    def _jaas(self) -> Path:
        return self.data_dir / "jaas.conf"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedZooKeeper]:
    server = GuardedZooKeeper(tmp_path_factory.mktemp("sasl") / "zookeeper", guarded=True)
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


def test_who_knows_the_password_reads_and_writes(guarded: GuardedZooKeeper) -> None:
    with TopicStore(settings(guarded, "secret"), "c") as store:
        assert store.create_topic("flights", "h:9092", "g")
        assert isinstance(store.snapshots()["flights"], TopicSnapshot)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_others_are_told_to_look_at_username_and_password(guarded: GuardedZooKeeper) -> None:
    with (
        pytest.raises(ZooKeeperError, match="username and password"),
        TopicStore(settings(guarded, "x"), "c"),
    ):
        pass
    anybody = ZooKeeperSettings(hosts=guarded.address, operation_timeout=5.0)
    with pytest.raises(ZooKeeperError, match="username and password"), TopicStore(anybody, "c"):
        pass
