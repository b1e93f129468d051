#!/usr/bin/env bash
# Runs a Python program as a test. Its path is the first argument.
export PATH="$PATH:/usr/sbin:/sbin" PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
exec python3 "$@"
