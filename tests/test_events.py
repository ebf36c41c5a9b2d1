"""What long work tells its caller."""

from deelbo import events


def test_a_stage_passes_its_progress_on():
    seen = []
    progress = events.stage(seen.append, "reading")
    progress(3, 9)
    progress(9, 9)
    assert seen == [events.Stage("reading", 3, 9), events.Stage("reading", 9, 9)]


def test_nobody_needs_to_listen():
    assert events.ignore(events.Note("something")) is None
