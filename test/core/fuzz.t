#!/bin/sh
# Every fuzz target of the core for a while (FUZZ_SECONDS, 20 by default).
exec make -s -C "$(dirname "$0")" fuzz
