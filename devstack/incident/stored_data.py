"""What is stored goes back: rows are deleted, and the Delta table is restored to an earlier version."""

from __future__ import annotations

from devstack.demo.story import TOPIC
from devstack.incident.part import PARTITIONS, Part

CLEARED = 300
"""Records of each partition whose rows are deleted: fewer than came since the last replay."""
LATER = 150
"""Records of each partition that are written between a version of the Delta table and its restore."""


class StoredData(Part):
    """Each record stands in both tables once afterwards, too."""

    def _clear_a_table(self) -> None:
        with self._consumption_paused("rows were deleted by mistake"):
            begins = {p: at - CLEARED for p, at in self.view.committed(TOPIC).items()}
            self.tables.delete(TOPIC, begins)
            self.timeline.say(f"The last {CLEARED} rows of each partition are deleted from both tables")
            self._seek(f"--to=-{CLEARED}", "--rebuild", why="write the deleted rows again")
        with self.timeline.step("Rebuild: the deleted rows are written again") as progress:
            self._settle(progress)

    def _restore_a_table(self) -> None:
        with self._consumption_paused("a copy of this version is taken"):
            version, before = self.tables.version, self.view.committed(TOPIC)
        with self.timeline.step(
            f"Restore: flights flow after version {version} of the Delta table"
        ) as progress:

            def flowed() -> bool:
                now = self.view.committed(TOPIC)
                return all(now[p] >= before[p] + LATER for p in range(PARTITIONS))

            self.wait(progress, f"{LATER} in each partition", flowed)
            progress.result = "they stand in both tables"
        with self._consumption_paused("the Delta table is restored"):
            self.tables.restore(version)
            self.timeline.say(f"The Delta table is restored to version {version}; PostgreSQL is not")
            now = self.view.committed(TOPIC)
            back = max(now[p] - before[p] for p in range(PARTITIONS))
            self._seek(f"--to=-{back}", why=f"version {version} was restored")
        with self.timeline.step(
            "Restore: the Delta table gets what it lost, PostgreSQL has it already"
        ) as progress:
            self._settle(progress)
