"""A consumer that does every step of docs/protocol.md, "What a consumer does", and shares no code with Muster.

    foreign_consumer.py ID CLUSTER SERVICE ZOOKEEPER CONSUL [SECONDS BETWEEN COMMITS [SECONDS UNTIL RENEWALS]]

It prints "topic partition offset" of each record, and leaves when its standard input ends. One thread hears Consul,
one watches ZooKeeper; the main thread alone acts on what they found. Docstrings name the steps of the page.
"""

import base64
import json
import sys
import threading
import time
import urllib.request
import uuid
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from urllib.error import HTTPError, URLError

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

NAME, CLUSTER, SERVICE, ZOOKEEPER, CONSUL = sys.argv[1:6]
COMMIT_EVERY = float(sys.argv[6]) if len(sys.argv) > 6 else 1.0
RENEW_EVERY = float(sys.argv[7]) if len(sys.argv) > 7 else 86_400.0
INCARNATION = str(uuid.uuid4())
ROOT = f"/consumers/{CLUSTER}/assignments"
LISTS = ("running", "starting", "closing")
KAFKA = 30.0  # seconds for an answer
COMMIT = 8.0  # seconds for a commit
now = time.monotonic


@dataclass
class Topic:
    """An assignment node that was acted on. `place` is bootstrap servers, group and topic id."""

    zxid: int
    epoch: int
    place: tuple
    mine: set
    standby: list


@dataclass
class Partition:
    """A partition that is held. `position` and `committed` are the next offset to read, None before the first."""

    place: tuple
    state: str = "starting"
    producer: Producer = None
    reading: bool = False
    position: int = None
    committed: int = None
    committed_at: float = 0.0
    note: str = ""  # what stands in the metadata behind the topic id, and stays there
    drop: bool = False  # close it without committing


lock, wake, ended = threading.Lock(), threading.Event(), threading.Event()
topics, held = {}, {}  # which the status page shows; they change under `lock`
consumers, refused, gone = {}, {}, {}
heard = SimpleNamespace(generation=0, older={}, asked=0.0, passing=False, live_since=None)  # from Consul
heard.isolated = heard.replaced = heard.stop = False
heard.epochs = {}
reading = SimpleNamespace(began=0.0, zxid=-1, nodes={})  # of ZooKeeper, the last one
me = SimpleNamespace(port=0, leaving=False, closing=False, taken_at=0.0, reading=reading)


def log(*words):
    """Say on standard error what went wrong, in one write: librdkafka's threads write there, too."""
    sys.stderr.write(" ".join(map(str, words)) + "\n")
    sys.stderr.flush()


class StatusPage(BaseHTTPRequestHandler):
    """Steps 1 and 3: the three lists of each topic, and the epoch that they follow from."""

    def do_GET(self):
        with lock:
            found = {name: {"epoch": topic.epoch, "standby": topic.standby} for name, topic in topics.items()}
            for name in found.keys() | {key[0] for key in held}:
                found[name] = found.get(name, {}) | {state: [] for state in LISTS}
            for (name, number), partition in held.items():
                found[name][partition.state].append(number)
            page = {"consumer": NAME, "incarnation": INCARNATION, "epochs": True, "leaving": me.closing}
            page["topics"] = {} if heard.older else found  # what the older process holds is not closed
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(page).encode())

    def log_message(self, *_):
        pass


# -- Consul -----------------------------------------------------------------------------------------------------


def ask_consul(path, method="GET", body=None):
    """HTTP status and content of an answer. Raises OSError if Consul is out of reach, or has no leader."""
    data = None if body is None else json.dumps(body).encode()
    try:
        request = urllib.request.Request(CONSUL + path, data=data, method=method)  # noqa: S310
        with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310
            return answer.status, answer.read()
    except HTTPError as error:
        if error.code not in {404, 429, 503}:  # there is none; its check warns; its check fails
            raise
        return error.code, error.read()


def read_key(kind, name=NAME):
    """One of this consumer's keys with its index, None and 0 if there is none; empty if it is malformed."""
    status, data = ask_consul(f"/v1/kv/muster/{CLUSTER}/{kind}/{name}")
    if status == 404:
        return None, 0
    entry = json.loads(data)[0]
    try:
        value = json.loads(base64.b64decode(entry["Value"] or ""))
    except ValueError:
        value = {}
    return value if isinstance(value, dict) else {}, entry["ModifyIndex"]


def read_registration():
    """What the local agent has under this id: metadata and health, empty if it has nothing."""
    status, data = ask_consul(f"/v1/agent/health/service/id/{NAME}")
    entry = {"Service": {}, "AggregatedStatus": ""} if status == 404 else json.loads(data)
    return entry["Service"].get("Meta") or {}, entry["AggregatedStatus"]


def metadata():
    """Steps 1, 11 and 12: what goes with the registration."""
    waiting = {"replaces": ",".join(heard.older)} if heard.older else {}
    leaving = {"leaving": "true"} if me.leaving else {}
    return {"incarnation": INCARNATION, "generation": str(heard.generation)} | waiting | leaving


def register():
    """Step 1. A process that takes an id over begins with the health of the one before."""
    url, health = f"http://127.0.0.1:{me.port}/status", "passing" if heard.passing else "critical"
    entry = {"ID": NAME, "Name": SERVICE, "Address": "127.0.0.1", "Port": me.port, "Meta": metadata()}
    entry["Check"] = {"HTTP": url, "Interval": "1s", "Status": health}
    ask_consul("/v1/agent/service/register", "PUT", entry)


def become_newest():
    """Step 12: note the processes that have this id until now, and take the next generation."""
    known = {}
    for entry in json.loads(ask_consul(f"/v1/health/service/{SERVICE}")[1]):
        service, meta = entry["Service"], entry["Service"]["Meta"] or {}
        if service["ID"] == NAME:
            itself = f"{meta.get('incarnation', '')}@{service['Address']}:{service['Port']}"
            older = [*filter(None, meta.get("replaces", "").split(",")), itself]
            heard.older |= dict.fromkeys(older, now())
            passing = all(check["Status"] == "passing" for check in entry["Checks"])
            known[int(meta.get("generation", 0))] = passing
    heard.passing = bool(known) and known[max(known)]
    key, index = read_key("generations")
    number = 1 + max([(key or {}).get("generation", 0), *known])
    path = f"/v1/kv/muster/{CLUSTER}/generations/{NAME}?cas={index}"
    answer = ask_consul(path, "PUT", {"generation": number, "incarnation": INCARNATION})
    heard.generation = number if answer[1].strip() == b"true" else 0


def is_gone(older):
    """Step 12: whether an older process of this id holds nothing any more, and takes nothing up."""
    incarnation, _, address = older.rpartition("@")
    try:
        with urllib.request.urlopen(f"http://{address}/status", timeout=1) as answer:
            page = json.load(answer)
    except (OSError, ValueError) as error:
        ended = isinstance(error, URLError) and isinstance(error.reason, ConnectionRefusedError)
        return ended or now() - heard.older[older] > 5
    heard.older[older] = now()
    holds = any(topic[state] for topic in page["topics"].values() for state in LISTS)
    return page["incarnation"] != incarnation or (page.get("leaving", False) and not holds)


def hear_consul():
    """Steps 1, 4, 8, 9, 10, 12 and 14, twice a second. While Consul is out of reach, what it said last stays."""
    while not ended.wait(0.5):
        try:
            if not heard.generation:
                become_newest()
                continue
            asked = now()
            (newest, _), (stop, _), (isolated, _) = map(read_key, ("generations", "stop", "isolated"))
            meta, health = read_registration()
            mine = meta.get("incarnation") == INCARNATION
            heard.passing = health == "passing" if mine else heard.passing
            heard.asked = asked if mine else heard.asked
            numbers = (newest or {}).get("generation", 0), int(meta.get("generation", 0))
            heard.replaced |= max(numbers) > heard.generation
            heard.stop |= (stop or {}).get("incarnation") in {"", INCARNATION}
            heard.isolated = isolated is not None or health == "maintenance"
            heard.older = {older: at for older, at in heard.older.items() if not is_gone(older)}
            if not mine or not heard.passing or heard.isolated or heard.older:
                heard.live_since = None
            elif heard.live_since is None:
                heard.epochs = read_key("coordination", "epochs")[0] or {}
                heard.live_since = now()
                wake.set()
            if meta != metadata() and not heard.replaced:
                register()
        except (OSError, ValueError, KeyError, TypeError) as error:
            log(f"Consul: {error!r}; going on")


# -- ZooKeeper --------------------------------------------------------------------------------------------------


def read_assignments(zookeeper):
    """Step 2: all nodes, after a sync. A node that is malformed counts as it was."""
    began, nodes = now(), {}
    watch = lambda _: wake.set()  # noqa: E731
    zookeeper.sync_async("/").get(timeout=5)
    try:
        names, stat = zookeeper.get_children_async(ROOT, watch=watch, include_data=True).get(timeout=5)
    except NoNodeError:
        return SimpleNamespace(began=began, zxid=zookeeper.last_zxid, nodes={})
    for name in names:
        data, node = zookeeper.get_async(f"{ROOT}/{name}", watch=watch).get(timeout=5)
        try:
            nodes[name] = node.mzxid, json.loads(data)
        except ValueError:
            nodes |= {name: me.reading.nodes[name]} if name in me.reading.nodes else {}
    return SimpleNamespace(began=began, zxid=stat.pzxid, nodes=nodes)


def watch_zookeeper():
    """Steps 2, 8 and 14: read at each change, and every 5 s, in a new session after 15 s without an answer."""
    zookeeper, read_at = None, now()
    while not ended.is_set():
        wake.clear()
        try:
            if zookeeper is None:
                zookeeper, read_at = KazooClient(hosts=ZOOKEEPER), now()
                zookeeper.start_async()
            me.reading, read_at = read_assignments(zookeeper), now()
            wake.wait(5)
        except (KazooException, KazooTimeoutError) as error:
            log(f"ZooKeeper: {error!r}; going on")
            if now() - read_at > 15:
                zookeeper.stop()
                zookeeper = None
            ended.wait(0.5)


def accept(reading):
    """Steps 2, 7, 8 and 13: take the nodes of epochs that are not lower, and drop the topics that are gone."""
    for name, (zxid, node) in reading.nodes.items():
        known, epoch = topics.get(name), node.get("epoch", 0)
        noted = max(heard.epochs.get(name, 0), gone.get(name, 0))  # of what was there before
        place = node["bootstrap.servers"], node["group.id"]
        unknown = known.place[2] if known and known.place[:2] == place else ""
        mine = {int(number) for number, owner in node["assignments"].items() if owner == NAME}
        standby = [int(number) for number, ids in node.get("standbys", {}).items() if NAME in ids]
        if known and (epoch < known.epoch or (epoch == known.epoch and mine != known.mine)):
            # ZooKeeper was restored from a backup, and the coordinator has not planned since, or not asked.
            known.epoch = max(known.epoch, epoch + 1)
            continue
        if epoch < noted:  # restored as well: what is held stays, and nothing is taken up
            mine, standby, epoch = {p for topic, p in held if topic == name}, [], noted
        topics[name] = Topic(zxid, epoch, (*place, node.get("topic.id", unknown)), mine, standby)
    for name in topics.keys() - reading.nodes.keys():
        if reading.zxid >= topics[name].zxid:
            gone[name] = topics.pop(name).epoch + 1


# -- Kafka ------------------------------------------------------------------------------------------------------


def is_fresh(key, reading):
    """Step 4: whether `reading` began since this consumer is live, and since it lost this partition to another."""
    times, at = refused.get(key, (0, 0.0))
    since = at + min(2.0**times, 60.0) if times else 0.0
    live = heard.live_since is not None and reading.began > heard.live_since
    return live and reading.began > since and (not times or heard.asked > since)


def act():
    """Steps 3, 4, 5, 7 and 9: lists and epochs change in one step; a partition closes before it is taken up again."""
    with lock:
        reading = me.reading
        accept(reading)
        barred = heard.isolated or heard.replaced or heard.older or me.closing
        wanted = (
            {} if barred else {(name, p): topic.place for name, topic in topics.items() for p in topic.mine}
        )
        for key, partition in held.items():
            old, new = partition.place[2], topics[key[0]].place[2] if key[0] in topics else ""
            partition.drop |= bool(old and new) and old != new  # the topic was created again
            if wanted.get(key) != partition.place and partition.state != "closing":
                partition.state, me.taken_at = "closing", now()
        held.update({k: Partition(wanted[k]) for k in wanted.keys() - held.keys() if is_fresh(k, reading)})


def take_up(key, partition):
    """Step 6: claim the partition, then read where the group is, then begin there. Raises KafkaException."""
    servers, group, topic_id = place = partition.place
    settings = {
        "bootstrap.servers": servers,
        "transactional.id": f"muster/{CLUSTER}/{key[0]}/{key[1]}/{group}",
    }
    producer = Producer(settings | {"transaction.timeout.ms": 30000})
    producer.init_transactions(KAFKA)
    if place not in consumers:
        settings = {"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False}
        consumers[place] = Consumer(settings | {"auto.offset.reset": "earliest"})
    (there,) = consumers[place].committed([TopicPartition(*key)], timeout=KAFKA)
    if there.error:
        raise KafkaException(there.error)
    mark, cluster, of_topic, note = [*(there.metadata or "").split(":", 3), "", "", ""][:4]
    if mark == "muster" and cluster != CLUSTER:
        log(f"group {group} belongs to cluster {cluster}; give this cluster another one")
        return
    another = mark == "muster" and "" not in {topic_id, of_topic} and topic_id != of_topic
    if there.offset >= 0 and not another:
        partition.position, partition.committed, partition.committed_at = there.offset, there.offset, now()
        partition.note = note if mark == "muster" else ""
    start = OFFSET_BEGINNING if partition.position is None else partition.position
    consumers[place].incremental_assign([TopicPartition(*key, start)])
    with lock:
        partition.producer, partition.reading, partition.state = producer, True, "running"


def read():
    """Process records: print them."""
    ended.wait(0 if consumers else 0.1)
    for place, consumer in consumers.items():
        for message in consumer.consume(500, timeout=0.1):
            partition = held.get((message.topic(), message.partition()))
            if message.error() is None and partition and partition.reading and partition.place == place:
                print(message.topic(), message.partition(), message.offset(), flush=True)
                partition.position = message.offset() + 1


def transact(producer, item, group, failures):
    """Commit in one transaction; what it fails with is put into `failures`."""
    try:
        producer.begin_transaction()
        producer.send_offsets_to_transaction([item], group, COMMIT)
        producer.commit_transaction(COMMIT)
    except KafkaException as error:
        failures.append(error.args[0].str())


def commit(key, partition):
    """Step 6: commit in a transaction of the partition's id. If that fails, the partition may be another's by now.

    In a thread: librdkafka (2.16) can wait endlessly in `send_offsets_to_transaction` when a broker was restarted
    meanwhile, whatever time-out it is given. The next producer of that id ends such a transaction.
    """
    stamp = f"muster:{CLUSTER}:{partition.place[2]}" + f":{partition.note}" * bool(partition.note)
    item = TopicPartition(*key, partition.position, stamp)
    group, failures = consumers[partition.place].consumer_group_metadata(), []
    given = partition.producer, item, group, failures
    committing = threading.Thread(target=transact, args=given, daemon=True)
    committing.start()
    committing.join(COMMIT)
    if committing.is_alive():
        failures.append("no answer")
    if not failures:
        partition.committed, partition.committed_at = partition.position, now()
        refused.pop(key, None)
    else:
        log("refused", *key, partition.position, *failures)
        refused[key] = refused.get(key, (0, 0.0))[0] + 1, now()
        partition.drop = True
        with lock:
            partition.state = "closing"


def close(key, partition):
    """Step 5: stop reading, commit, and only then stop mentioning the partition."""
    if partition.reading:
        consumers[partition.place].incremental_unassign([TopicPartition(*key)])
        partition.reading = False
    if not partition.drop and partition.position != partition.committed:
        commit(key, partition)
    # In a thread: a producer that was refused may take long to end, and the other partitions have to close.
    ending, partition.producer = [partition.producer], None
    threading.Thread(target=ending.clear, daemon=True).start()
    with lock:
        del held[key]


def serve(commits):
    """One round: remove, add, read, commit. What Kafka does not do now is tried again in the next round."""
    act()
    for key, partition in list(held.items()):
        if partition.state == "closing":
            close(key, partition)
        elif partition.state == "starting":
            try:
                take_up(key, partition)
            except KafkaException as error:
                log(f"topic {key[0]}, partition {key[1]}: {error}; trying again")
    read()
    for key, partition in list(held.items()) if commits else []:
        old = partition.position is not None and now() - partition.committed_at > RENEW_EVERY
        if partition.state == "running" and (old or partition.position != partition.committed):
            commit(key, partition)
    for place in consumers.keys() - {partition.place for partition in held.values()}:
        consumers.pop(place).close()


def main():
    """Serve, and leave as steps 10 to 12 say: hand over while reading on, close what is left, deregister last."""
    page = ThreadingHTTPServer(("127.0.0.1", 0), StatusPage)
    me.port, committed_at, asked = page.server_port, now(), threading.Event()
    hearing = threading.Thread(target=hear_consul, daemon=True)
    hearing.start()
    for work in (page.serve_forever, watch_zookeeper, lambda: (sys.stdin.read(), asked.set())):
        threading.Thread(target=work, daemon=True).start()
    while held or not me.closing:
        commits = now() - committed_at >= COMMIT_EVERY
        committed_at = now() if commits else committed_at
        serve(commits)
        if (asked.is_set() or heard.stop) and not me.leaving:
            me.leaving, me.taken_at = True, now()
        handed_over = me.leaving and (not held or now() - me.taken_at > 5)
        me.closing = me.closing or handed_over or heard.replaced
    ended.set()
    hearing.join()
    if read_registration()[0].get("incarnation") == INCARNATION:
        ask_consul(f"/v1/agent/service/deregister/{NAME}", "PUT")


main()
