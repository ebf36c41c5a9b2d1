"""What the commands do, from names of data and models to files; the command line adds options and words."""
