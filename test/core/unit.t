#!/bin/sh
# The unit tests of the core, under sanitizers.
exec make -s -C "$(dirname "$0")" check
