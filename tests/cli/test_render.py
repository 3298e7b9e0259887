"""Tables print what they are given."""

from specops.cli.render import emit_table


def test_brackets_in_a_cell_are_text(capsys):
    """The name of an extra must reach the reader whole."""
    emit_table("t", ("a",), [("pip install 'specops[torch]'",)])
    assert "specops[torch]" in capsys.readouterr().out


def test_brackets_in_a_title_are_text(capsys):
    """A name cannot colour the terminal, nor break the table."""
    emit_table("n [red]x[/red] [/bold]", ("a",), [("1" * 40,)])
    assert "n [red]x[/red] [/bold]" in capsys.readouterr().out
