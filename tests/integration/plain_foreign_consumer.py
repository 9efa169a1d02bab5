"""A consumer that does only what a consumer must, and shares no code with Muster. Prints what it reads."""

import json
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

name, cluster, service, zookeeper, consul, brokers, group = sys.argv[1:]
root = f"/consumers/{cluster}/assignments"
lists: dict[str, dict[str, list[int]]] = {}
lock, stop = threading.Lock(), threading.Event()


class Status(BaseHTTPRequestHandler):
    def do_GET(self):
        with lock:
            body = json.dumps({"consumer": name, "incarnation": "foreign-1", "topics": lists}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def call_consul(path, body=None):
    data = json.dumps(body).encode() if body else b""
    request = urllib.request.Request(f"{consul}{path}", data=data, method="PUT")  # noqa: S310
    urllib.request.urlopen(request, timeout=5).close()  # noqa: S310


page = ThreadingHTTPServer(("127.0.0.1", 0), Status)
threading.Thread(target=page.serve_forever, daemon=True).start()
zk = KazooClient(hosts=zookeeper)
zk.start()
kafka = Consumer({"bootstrap.servers": brokers, "group.id": group, "enable.auto.commit": False})
check = {"HTTP": f"http://127.0.0.1:{page.server_port}/status", "Interval": "1s", "Status": "passing"}
entry = {"ID": name, "Name": service, "Address": "127.0.0.1", "Port": page.server_port, "Check": check}
call_consul("/v1/agent/service/register", entry)
threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
mine, leaving = set(), False
while not (leaving and not mine):
    leaving = stop.is_set()
    wanted = set()
    try:
        for topic in [] if leaving else zk.get_children(root) if zk.exists(root) else []:
            data, _ = zk.get(f"{root}/{topic}")
            owners = json.loads(data)["assignments"] if data else {}
            wanted |= {(topic, int(p)) for p, owner in owners.items() if owner == name}
    except KazooException:  # out of reach: go on with what there is
        wanted = mine
    if gone := mine - wanted:  # close first: stop, commit, and only then stop mentioning it
        with lock:
            for topic, p in gone:
                lists[topic]["running"].remove(p)
                lists[topic]["closing"].append(p)
        places = [tp for tp in kafka.position([TopicPartition(t, p) for t, p in gone]) if tp.offset >= 0]
        if places:
            kafka.commit(offsets=places, asynchronous=False)
        kafka.incremental_unassign([TopicPartition(t, p) for t, p in gone])
        with lock:
            for topic, p in gone:
                lists[topic]["closing"].remove(p)
    if new := wanted - mine:  # then start, where the group left off
        try:
            starts = kafka.committed([TopicPartition(t, p) for t, p in new], timeout=10)
        except KafkaException:  # the group's coordinator moves; ask again in the next round
            mine &= wanted
            continue
        for tp in starts:
            tp.offset = tp.offset if tp.offset >= 0 else OFFSET_BEGINNING
        kafka.incremental_assign(starts)
        with lock:
            for topic, p in new:
                lists.setdefault(topic, {"running": [], "starting": [], "closing": []})["running"].append(p)
    mine = wanted
    for message in kafka.consume(500, timeout=0.1):
        if message.error() is None:
            print(message.topic(), message.partition(), message.offset(), flush=True)
call_consul(f"/v1/agent/service/deregister/{name}")
