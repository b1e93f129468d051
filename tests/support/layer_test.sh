#!/usr/bin/env bash
# As python_test.sh, with every program of the test under the layer: each writes a program trace,
# whose lines are looked at when its hosts are taken down (emulated.py).
export RDMA_TEST_LAYER=1
export PATH="$PATH:/usr/sbin:/sbin" PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
exec python3 "$@"
