"""Facts about perftest's programs (ib_write_bw and others)."""

import emulated

# With -R perftest connects twice, and its server closes the first listener before it opens the
# second. A quick client finds no listener, on any RDMA device. Such a case runs again.
RACE = "Event: RDMA_CM_EVENT_REJECTED; error: 8."
IWARP_RACE = "Failed to connect through RDMA CM.\nERRNO: Connection refused."  # rdma_connect says it
ATTEMPTS = 12  # each attempt loses the race about one time in six on a busy machine


def without_race(run):
    """Runs a case with -R until perftest's two sides meet, and returns its result."""
    for attempt in range(ATTEMPTS):
        try:
            return run()
        except emulated.Failure as failure:
            if RACE not in str(failure) or attempt + 1 == ATTEMPTS:
                raise


# A row of the table, by bytes and iterations. perftest prints it after the completion of all
# iterations. Its figures may all be 0.00 or inf, because perftest measures the processor's
# frequency first. On a busy machine this measurement fails ("Correlation coefficient r^2").
ROW = r"^ *%d +%d +([0-9]+[.][0-9]+|inf) "
