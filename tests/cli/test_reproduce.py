"""`deelbo reproduce` as a user types it."""

from deelbo.cli import main
from deelbo.reproduce import FIGURES


def test_command(capsys):
    assert main(["reproduce", "--list"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in FIGURES)
    assert main(["reproduce", "fig-9"]) == 2
    assert "there are fig-2, fig-a1, fig-a2, fig-a3" in capsys.readouterr().err
    assert main(["reproduce"]) == 2
    assert main(["reproduce", "fig-2", "--seed", "-1"]) == 2
    assert main(["reproduce", "fig-2", "--out", __file__]) == 2
    assert "not a folder" in capsys.readouterr().err
