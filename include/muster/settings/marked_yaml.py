"""YAML that knows its lines: what a document holds, and the line on which a key stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    """YAML as it is meant: a key that stands twice in one mapping is an error; PyYAML takes the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Make the mapping, unless a key stands in it twice."""
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if (key.tag, key.value) in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"key {key.value[:100]!r} stands there twice", key.start_mark
                    )
                seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)


class YamlError(ValueError):
    """A text is not YAML. `line` is where, 1 if that is unknown."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


class MarkedYaml:
    """A YAML document: `content` is what it holds. Raises `YamlError`."""

    def __init__(self, data: bytes) -> None:
        try:
            loader = _Loader(data.decode())
            try:
                self._root = loader.get_single_node()
                self.content = None if self._root is None else loader.construct_document(self._root)
            finally:
                loader.dispose()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            problem = "; ".join(filter(None, (error.context, error.problem)))
            raise YamlError(problem[:500], mark.line + 1 if mark else 1) from error
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            # ValueError: of bytes that are no UTF-8, and of a date that there is not.
            raise YamlError(str(error)[:500], 1) from error

    @property
    def has_only_comments(self) -> bool:
        """Whether there is no document."""
        return self._root is None

    def line(self, location: Sequence[str | int]) -> int:
        """Return the line (from 1) of the key or list item at `location`, else of the nearest around it.

        A part that the document does not have, such as a key that a default stands for, is passed over.
        """
        node, line = self._root, 1
        for part in location:
            found = _step(node, part)
            if found is not None:
                line, node = found
        return line


def _step(node: yaml.Node | None, part: str | int) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value == str(part):
                return key.start_mark.line + 1, value
    elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part].start_mark.line + 1, node.value[part]
    return None
