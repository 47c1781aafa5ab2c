# keyright: floating licenses inside PostgreSQL. README.md says how to use it.

EXTENSION = keyright
MODULE_big = keyright
DATA = sql/keyright--0.1.0.sql
OBJS = $(patsubst %.c,%.o,$(sort $(wildcard src/*.c src/core/*.c)))

# GNU99 is what PostgreSQL itself asks for.  "make WERROR=1" is what the tests
# build with; a user's newer compiler should not stop at a new warning.
PG_CPPFLAGS = -Isrc -Isrc/core
PG_CFLAGS = -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers \
	-Wno-sign-compare $(if $(WERROR),-Werror)
SHLIB_LINK = -lsodium
# Bitcode for the JIT would need clang and speeds up nothing here.
override with_llvm = no

REGRESS = $(patsubst test/sql/%.sql,%,$(sort $(wildcard test/sql/*.sql)))
REGRESS_OPTS = --inputdir=test --load-extension=keyright
ISOLATION = $(patsubst test/specs/%.spec,%,$(sort $(wildcard test/specs/*.spec)))
ISOLATION_OPTS = --inputdir=test --load-extension=keyright

PG_CONFIG = pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)
