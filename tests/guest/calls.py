"""Calls of several threads at the same time, and signals, cancellation and locks around calls."""

import os

from programs import LIMIT_S, OUTPUT, build, run  # before `emulated`
import emulated
from emulated import Emulator, Failure, free_addresses

PAGES = 8  # CallPageSet::kAtOnce: so many threads of a process call at the same time


def hold_calls(emulator, threads, others):
    """Starts a program in which so many threads free a PD, which a rule holds, beside others."""
    rule = os.path.join(OUTPUT, "held_calls.toml")
    with open(rule, "w") as text:
        text.write('[[fault]]\nname = "held"\nat = "call.dealloc_pd"\nhold = true\n')
    program = emulator.start("guest", free_addresses(1)[0],
                             [build("held_calls"), str(threads), str(others)], ["--scenario", rule])
    if not program.wait_for_text("calling", LIMIT_S):
        raise Failure("the program did not begin\n" + program.describe())
    return program


def await_held(emulator, times):
    held = emulator.rdmaemu("fault", "wait", "--host", "guest", "held", "--times", str(times),
                            "--timeout", "60s")
    if held.returncode != 0:
        raise Failure("%d calls are not held: %s" % (times, held.stderr))


def release(emulator):
    emulator.rdmaemu("fault", "release", "--host", "guest", "held")


def others_go_on_while_calls_are_held(held, others):
    with Emulator() as emulator:
        program = hold_calls(emulator, held, others)
        await_held(emulator, held)
        program.process.stdin.close()
        if not program.wait_for_text("went on", LIMIT_S):
            raise Failure("a held call stops another thread\n" + program.describe())
        release(emulator)
        program.wait(LIMIT_S)
        program.expect(r"^freed %d$" % held)


def a_thread_goes_on_while_calls_of_all_others_are_held():
    others_go_on_while_calls_are_held(PAGES - 1, 1)


def more_threads_than_pages_go_on_while_a_call_is_held():
    others_go_on_while_calls_are_held(1, 2 * PAGES)


def a_handler_polls_under_a_rule_while_more_threads_than_pages_call():
    rule = os.path.join(OUTPUT, "polls.toml")
    with open(rule, "w") as text:
        text.write('[[fault]]\nname = "polls"\nat = "call.poll_cq"\n')
    with Emulator() as emulator:
        for threads in (1, PAGES, PAGES + 4):
            program = emulator.start("handler%d" % threads, free_addresses(1)[0],
                                     [build("handler_calls"), str(threads)], ["--scenario", rule])
            program.wait(LIMIT_S)
            program.expect(r"^called$")


def a_handler_polls_after_each_instruction_of_a_call():
    with Emulator() as emulator:
        run(emulator, [build("handler_steps")]).expect(r"^called$")


def more_held_calls_than_pages_let_each_other_go_on():
    with Emulator() as emulator:
        program = hold_calls(emulator, PAGES + 1, 1)
        await_held(emulator, PAGES)
        program.process.stdin.close()
        release(emulator)
        await_held(emulator, PAGES + 1)
        release(emulator)
        program.wait(LIMIT_S)
        program.expect(r"^went on$", r"^freed %d$" % (PAGES + 1))


def a_child_binds_while_a_thread_of_its_parent_opens_the_device():
    rule = os.path.join(OUTPUT, "opens.toml")
    with open(rule, "w") as text:
        text.write('[[fault]]\nname = "held"\nat = "call.open_device"\nnth = 1\nhold = true\n')
    address = free_addresses(1)[0]
    with Emulator() as emulator:
        program = emulator.start("guest", address, [build("binds_in_child"), address],
                                 ["--scenario", rule])
        if not program.wait_for_text("binding", LIMIT_S):
            raise Failure("the program did not begin\n" + program.describe())
        await_held(emulator, 1)
        program.process.stdin.close()
        if not program.wait_for_text("child 0", LIMIT_S):
            raise Failure("the child waits for its parent's thread\n" + program.describe())
        release(emulator)
        program.wait(LIMIT_S)
        program.expect(r"^bound$")


def a_thread_that_is_cancelled_in_the_library_leaves_no_lock_and_takes_no_event():
    with Emulator() as emulator:
        run(emulator, [build("cancelled", "-rdynamic")]).expect(
            r"^cancelled 1$", r"^resolved 1$", r"^another fetches 1$",
            r"^destroy cancelled 1$")


def a_thread_takes_the_lock_under_which_another_one_polls():
    with Emulator() as emulator:
        run(emulator, [build("locked_polls")]).expect(r"^took the lock 10 times$")


def a_signal_within_a_yield_of_a_blocking_call_ends_it_like_read():
    with Emulator() as emulator:
        run(emulator, [build("interrupted", "-rdynamic")]).expect(
            r"^0 alarms, with SA_RESTART 1$", r"^rdma_get_cm_event: 0 yields$")


def a_signal_while_a_call_is_late_is_no_end_of_the_host():
    rule = os.path.join(OUTPUT, "late_call.toml")
    with open(rule, "w") as text:
        text.write('[[fault]]\nat = "call.dealloc_pd"\ndelay_ms = 500\n')
    with Emulator() as emulator:
        program = emulator.start("guest", free_addresses(1)[0], [build("late_call", "-rdynamic")],
                                 ["--scenario", rule])
        program.wait(LIMIT_S)
        program.expect(r"^freed$")


def a_handler_jumps_out_of_a_blocking_call_after_each_instruction():
    if emulated.UNDER_LAYER or emulated.CHECKS:
        raise emulated.Skip("the layer's own steps cannot be left")
    with Emulator() as emulator:
        run(emulator, [build("jumps")]).expect(r"^after each of [1-9][0-9]* steps$")


CASES = (
    a_thread_goes_on_while_calls_of_all_others_are_held,
    more_threads_than_pages_go_on_while_a_call_is_held,
    a_handler_polls_under_a_rule_while_more_threads_than_pages_call,
    a_handler_polls_after_each_instruction_of_a_call,
    more_held_calls_than_pages_let_each_other_go_on,
    a_child_binds_while_a_thread_of_its_parent_opens_the_device,
    a_thread_that_is_cancelled_in_the_library_leaves_no_lock_and_takes_no_event,
    a_thread_takes_the_lock_under_which_another_one_polls,
    a_signal_within_a_yield_of_a_blocking_call_ends_it_like_read,
    a_signal_while_a_call_is_late_is_no_end_of_the_host,
    a_handler_jumps_out_of_a_blocking_call_after_each_instruction)
