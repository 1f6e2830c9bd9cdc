"""A group of subcommands that suggests the nearest name for one it does not have."""

import click

from jobyard.config_values import suggestion


class CommandGroup(click.Group):
    """A group that suggests the nearest name for an unknown subcommand."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Return the names for the help, the most used first."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the subcommand, or raise an error with the nearest name."""
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            hint = suggestion(name, self.commands) or f"; commands are {', '.join(self.commands)}"
            raise click.UsageError(f"no such command {name!r}{hint}", ctx)
        return super().resolve_command(ctx, args)
