"""Clocks that tests control: no test depends on how fast the machine is."""

from torch.utils.data import Dataset


class Ticking:
    """A clock that goes on by a fixed time whenever someone looks at it."""

    def __init__(self, seconds=0.01):
        self.now, self.seconds = 0.0, seconds

    def __call__(self):
        self.now += self.seconds
        return self.now


class Timed(Dataset):
    """A dataset whose examples take time by a clock that only they move."""

    def __init__(self, dataset, seconds=1.0):
        self.dataset, self.seconds, self.now = dataset, seconds, 0.0

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, index):
        self.now += self.seconds
        return self.dataset[index]

    def clock(self):
        return self.now
