"""A file for each kind of entry; each registers its tables or figures in `ENTRIES`."""
