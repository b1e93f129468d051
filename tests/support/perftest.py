"""What tests know of perftest's programs (ib_write_bw and its kin)."""

# With -R perftest connects twice, and its server closes the first listener before it opens the
# second: a client that is quick finds nobody, on any RDMA device. Such a case runs again.
RACE = "Event: RDMA_CM_EVENT_REJECTED; error: 8."
IWARP_RACE = "Failed to connect through RDMA CM.\nERRNO: Connection refused."  # rdma_connect says it
ATTEMPTS = 12  # each loses about one time in six on a busy machine

# A row of the table, by bytes and iterations. It is printed when all of them have completed; its
# figures may be 0.00 or inf throughout, because perftest measures the processor's frequency first and a
# busy machine makes that measurement fail ("Correlation coefficient r^2").
ROW = r"^ *%d +%d +([0-9]+[.][0-9]+|inf) "
