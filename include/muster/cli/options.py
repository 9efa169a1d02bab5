"""What several commands of the command line share."""

from __future__ import annotations

import click

CLUSTER = click.option("--cluster", help="As in the settings; the only one, unless there are several.")


class ListsByDefault(click.Group):
    """Lists without a further command, so that the options of the list are the command's own."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Take what begins with no command of the group for the list's."""
        if not args or args[0] not in {*self.commands, "-h", "--help"}:
            args = ["list", *args]
        return super().parse_args(context, args)
