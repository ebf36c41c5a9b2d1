import os
import signal
import threading

import pytest

from deelbo._interrupt import DeferredInterrupt


def press():
    os.kill(os.getpid(), signal.SIGINT)


def test_first_ctrl_c_is_a_request_and_the_second_interrupts():
    before = signal.getsignal(signal.SIGINT)
    with DeferredInterrupt(insistent=True) as interrupt:
        press()
        assert interrupt.requested
        with pytest.raises(KeyboardInterrupt):
            press()
    assert signal.getsignal(signal.SIGINT) is before


def test_other_threads_are_left_alone():
    def work():
        with DeferredInterrupt(insistent=True) as interrupt:
            requests.append(interrupt.requested)

    requests = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert requests == [False]


def test_passes_are_never_cut_off_and_deliver_after():
    with DeferredInterrupt(insistent=False) as interrupt:
        press()
        press()
    with pytest.raises(KeyboardInterrupt):
        interrupt.deliver()


def test_nested_blocks_hand_the_request_on():
    with DeferredInterrupt(insistent=True) as outer:
        with DeferredInterrupt(insistent=False) as inner:
            press()
        inner.deliver()
        assert outer.requested
