"""The list of commands."""

import subprocess
import sys

import deelbo
from deelbo.cli.app import option_names


def test_the_installed_command():
    done = subprocess.run([sys.executable, "-m", "deelbo", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"deelbo {deelbo.__version__}"


def test_arguments_of_all_commands_are_options():
    assert {"train_size", "skip_bad", "kappas", "released", "top"} <= option_names()
    assert "no_such_option" not in option_names()
