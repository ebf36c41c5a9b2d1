"""The training loop, the search for a learning rate, and files that survive a crash."""
