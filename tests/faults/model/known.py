"""What the model finds and the project has not mended yet: the name of a rule or an event, and what is wrong.

A rule in this list is not checked, an event in it is not played at random. It has to be empty.
"""

from __future__ import annotations

from collections.abc import Mapping

KNOWN: Mapping[str, str] = {}
