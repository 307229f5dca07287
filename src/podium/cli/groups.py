"""A group of commands whose help says all of what each does."""

import click


class Commands(click.Group):
    """Click's own group cuts each command's line to fit; here it is wrapped."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = []
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                first, _, _ = (command.help or "").strip().partition("\n\n")
                rows.append((name, " ".join(first.split())))
        with formatter.section("Commands"):
            formatter.write_dl(rows)
