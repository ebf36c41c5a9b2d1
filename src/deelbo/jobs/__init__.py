"""The work of the commands, one file for each; the command line adds options, progress bars and printing."""
