import os
import signal
import threading

import pytest

from deelbo.training.interrupt import DeferredInterrupt


def press():
    os.kill(os.getpid(), signal.SIGINT)


def test_first_ctrl_c_is_a_request_and_the_second_interrupts():
    before = signal.getsignal(signal.SIGINT)
    with DeferredInterrupt() as interrupt:
        press()
        assert interrupt.requested
        with pytest.raises(KeyboardInterrupt):
            press()
    assert signal.getsignal(signal.SIGINT) is before


def test_other_threads_are_left_alone():
    def work():
        with DeferredInterrupt() as interrupt:
            requests.append(interrupt.requested)

    requests = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert requests == [False]
