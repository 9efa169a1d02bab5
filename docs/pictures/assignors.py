"""Draw docs/assignors.svg: the same small cluster under every built-in assignor, before and after a consumer leaves.

`make picture` runs it. Everything shown is what the assignors answered; a test reads it back from the picture.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from muster.core.assignors import BUILT_IN, PlanningContext, load_assignor, run_assignor
from muster.core.model import Assignment, Consumer

PICTURE = Path(__file__).parents[1] / "assignors.svg"

TOPICS = {"orders": frozenset(range(4)), "clicks": frozenset(range(4))}
CONSUMERS = {
    "a": Consumer("a", priority=2),
    "b": Consumer("b", priority=1),
    "c": Consumer("c", priority=1),
}
LEAVES = "a"
BUSY = ("orders", 0)
CONTEXT = PlanningContext(
    loads={
        topic: {p: 600.0 if (topic, p) == BUSY else 100.0 for p in partitions}
        for topic, partitions in TOPICS.items()
    }
)
RULES = {
    "range": "blocks, topic by topic",
    "round-robin": "dealt out in turn",
    "sticky": "balanced, few moves",
    "failover": "highest priority first",
    "co-partitioned": "partition n of all topics together",
    "load-aware": "measured load evened out",
}
"""What stands under an assignor's name; one that is not here yet is drawn without."""

WIDTH, TOP, ROW, CARD, BOX, LABEL, GAP = 830, 58, 104, 112, 20, 194, 70
STYLE = """
  text { font-family: system-ui, sans-serif; font-size: 12px; fill: #1f2328 }
  .name { font-size: 15px; font-weight: 600 }
  .quiet { fill: #59636e }
  .card { fill: #f6f8fa; stroke: #d1d9e0 }
  .orders { fill: #0969da }
  .clicks { fill: #9a6700 }
  .number { fill: #ffffff; font-weight: 600; text-anchor: middle }
  .orphan { stroke: #1f2328; stroke-width: 2; stroke-dasharray: 3 2 }
  .moved { stroke: #d1242f; stroke-width: 3 }
  .arrow { stroke: #59636e; stroke-width: 1.5; fill: none }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .quiet { fill: #9198a1 }
    .card { fill: #151b23; stroke: #3d444d }
    .orders { fill: #1f6feb }
    .orphan { stroke: #e6edf3 }
    .moved { stroke: #ff7b72 }
    .arrow { stroke: #9198a1 }
  }
"""


@dataclass(frozen=True)
class Scene:
    """What one assignor answered before and after a consumer left."""

    name: str
    before: Assignment
    after: Assignment

    @property
    def moves(self) -> int:
        """How many partitions moved though their owner stayed."""
        return sum(self.fate(topic, p) == "moved" for topic in TOPICS for p in TOPICS[topic])

    def fate(self, topic: str, partition: int) -> str:
        """Say what became of a partition when a consumer left: `stayed`, `orphan` (its owner left) or `moved`."""
        owner = self.before[topic][partition]
        if owner == LEAVES:
            return "orphan"
        return "stayed" if self.after[topic][partition] == owner else "moved"


def scenes() -> Iterator[Scene]:
    """Ask every built-in assignor, with its default options."""
    left = {name: consumer for name, consumer in CONSUMERS.items() if name != LEAVES}
    for name in BUILT_IN:
        assignor = load_assignor(name)
        before = run_assignor(assignor, TOPICS, CONSUMERS, {}, CONTEXT)
        yield Scene(name, before, run_assignor(assignor, TOPICS, left, before, CONTEXT))


def drawn() -> str:
    """Draw the whole picture as SVG."""
    rows = list(scenes())
    legend = TOP + ROW * len(rows) + 6
    after = LABEL + 3 * CARD + GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {legend + 42}" role="img">',
        f"<title>The same cluster under {escape(', '.join(BUILT_IN))}</title>",
        f"<style>{STYLE}</style>",
        _text(LABEL, 22, "consumers a, b and c", "name"),
        _text(after, 22, f"{LEAVES} has left", "name"),
        *(_text(LABEL + CARD * i + 8, 46, c, "quiet") for i, c in enumerate(CONSUMERS)),
        *(_text(after + CARD * i + 8, 46, c, "quiet") for i, c in enumerate(_left())),
    ]
    for number, scene in enumerate(rows):
        parts += _scene(scene, TOP + ROW * number, after)
    parts += [
        _box(0, legend, "orders", "", "stayed"),
        _text(26, legend + 15, "orders"),
        _box(90, legend, "clicks", "", "stayed"),
        _text(116, legend + 15, "clicks"),
        _box(LABEL, legend, "orders", "", "orphan"),
        _text(LABEL + 28, legend + 15, f"had to move: {LEAVES} had it"),
        _box(LABEL + 200, legend, "orders", "", "moved"),
        _text(LABEL + 228, legend + 15, "moved though its owner stayed"),
    ]
    if any("loads" in inspect.signature(load_assignor(name).assign).parameters for name in BUILT_IN):
        parts.append(_text(LABEL, legend + 38, _busy(), "quiet"))
    return "\n".join([*parts, "</svg>", ""])


def _busy() -> str:
    topic, partition = BUSY
    return f"{topic} {partition} carries six times the load of each other partition (for load-aware)"


def _left() -> list[str]:
    return [consumer for consumer in CONSUMERS if consumer != LEAVES]


def _scene(scene: Scene, y: int, after: int) -> Iterator[str]:
    yield f"<g data-assignor={quoteattr(scene.name)} data-moves={quoteattr(str(scene.moves))}>"
    yield _text(0, y + 24, scene.name, "name")
    for line, text in enumerate(_wrapped(RULES.get(scene.name, ""))):
        yield _text(0, y + 44 + 16 * line, text, "quiet")
    yield from _cards(scene, "before", LABEL, y)
    middle = y + ROW // 2 - 8
    start, end = LABEL + 3 * CARD + 6, after - 14
    yield f'<path class="arrow" d="M{start} {middle} H{end} m-6 -5 l6 5 l-6 5"/>'
    yield _text(start + 2, middle - 10, f"{scene.moves} moved")
    yield from _cards(scene, "after", after, y)
    yield "</g>"


def _cards(scene: Scene, when: str, x: int, y: int) -> Iterator[str]:
    assignment = scene.before if when == "before" else scene.after
    for number, consumer in enumerate(CONSUMERS if when == "before" else _left()):
        left = x + CARD * number
        yield f'<rect class="card" x="{left}" y="{y}" width="{CARD - 10}" height="{ROW - 24}" rx="6"/>'
        for line, topic in enumerate(TOPICS):
            owned = sorted(p for p, owner in assignment.get(topic, {}).items() if owner == consumer)
            for place, partition in enumerate(owned):
                where = f"data-when={quoteattr(when)} data-consumer={quoteattr(consumer)}"
                fate = "stayed" if when == "before" else scene.fate(topic, partition)
                box = _box(left + 8 + 23 * place, y + 14 + 30 * line, topic, str(partition), fate)
                yield f"<g {where} data-topic={quoteattr(topic)} data-partition='{partition}'>{box}</g>"


def _box(x: int, y: int, topic: str, label: str, fate: str) -> str:
    box = f'<rect class="{topic} {fate}" x="{x}" y="{y}" width="{BOX}" height="{BOX}" rx="3"/>'
    return box + (_text(x + BOX // 2, y + 14, label, "number") if label else "")


def _text(x: int, y: int, text: str, style: str = "") -> str:
    return f'<text x="{x}" y="{y}" class="{style}">{escape(text)}</text>'


def _wrapped(text: str, width: int = 26) -> list[str]:
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


if __name__ == "__main__":
    PICTURE.write_text(drawn(), encoding="utf-8")
