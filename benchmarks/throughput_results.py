"""What parts of the throughput benchmark have measured, in one file: a whole run is long and can be made so."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from benchmarks.options import load_results
from benchmarks.throughput_figures import Figure, Latency, Start, Tuning
from benchmarks.throughput_memory import Heap


@dataclass(frozen=True)
class Conditions:
    """What all parts have in common: a topic's `batches`, the machine's `load` before the run, a driver's `heap`, and
    the options of its JVM."""

    batches: int
    cores: int
    load: float
    heap: str
    java_options: str

    def alike(self, other: Conditions) -> bool:
        """Tell whether figures taken under both may stand in one table."""
        return replace(self, load=0.0) == replace(other, load=0.0)


@dataclass(frozen=True)
class Results:
    """Figures by topic and sink, the peer's tuning and cold starts by topic, latencies by trigger, and heaps."""

    conditions: Conditions
    figures: tuple[Figure, ...] = ()
    starts: tuple[Start, ...] = ()
    tunings: tuple[Tuning, ...] = ()
    delays: tuple[Latency, ...] = ()
    heaps: tuple[Heap, ...] = ()

    def joined(self, later: Results) -> Results:
        """Join both; what `later` measured again replaces what was there.

        Raises ValueError if they were not measured under the same conditions.
        """
        if not self.conditions.alike(later.conditions):
            raise ValueError(
                f"measured with {self.conditions}, now with {later.conditions}: use another file for the results"
            )
        figures = {(figure.input, figure.sink): figure for figure in (*self.figures, *later.figures)}
        starts = {start.input: start for start in (*self.starts, *later.starts)}
        tunings = {tuning.input: tuning for tuning in (*self.tunings, *later.tunings)}
        delays = {of.trigger: of for of in (*self.delays, *later.delays)}
        heaps = {heap.size: heap for heap in (*self.heaps, *later.heaps)}
        return Results(
            replace(later.conditions, load=max(self.conditions.load, later.conditions.load)),
            tuple(figures[key] for key in sorted(figures)),
            tuple(starts[key] for key in sorted(starts)),
            tuple(tunings[key] for key in sorted(tunings)),
            tuple(delays[key] for key in sorted(delays)),
            tuple(heaps[key] for key in sorted(heaps)),
        )


_JSON = TypeAdapter(Results)


def load(file: Path) -> Results | None:
    """Read what `save` wrote, None if there is no such file. Raises ValueError if it is something else."""
    return load_results(file, _JSON)


def save(file: Path, results: Results) -> None:
    """Write `results`, all of them."""
    file.write_bytes(_JSON.dump_json(results))
