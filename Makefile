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

# "make installcheck" asks your running server, which must preload keyright;
# "make installcheck NOPRELOAD=1" asks one that does not.  Immediate variables,
# because PGXS looks whether they are empty without expanding them.
REGRESS_DIR := $(if $(NOPRELOAD),test/nopreload,test)
REGRESS := $(patsubst $(REGRESS_DIR)/sql/%.sql,%,$(sort \
	$(wildcard $(REGRESS_DIR)/sql/*.sql)))
REGRESS_OPTS = --inputdir=$(REGRESS_DIR) --load-extension=keyright
ISOLATION := $(if $(NOPRELOAD),,$(patsubst test/specs/%.spec,%,$(sort \
	$(wildcard test/specs/*.spec))))
# Before 16 the expected results are sought in the output folder.
ISOLATION_OPTS = --inputdir=test --outputdir=. --load-extension=keyright

EXTRA_CLEAN = build $(foreach d,src src/core,$(d)/*.gcno $(d)/*.gcda)

# PG_CONFIG, or PG_MAJOR with Debian's packages, choose the PostgreSQL.
PG_CONFIG ?= $(if $(PG_MAJOR),/usr/lib/postgresql/$(PG_MAJOR)/bin/)pg_config
PGXS := $(wildcard $(shell $(PG_CONFIG) --pgxs 2>/dev/null))
ifneq ($(PGXS),)
include $(PGXS)
# A header that changed must reach every object: PGXS does not track that.
$(OBJS): $(wildcard src/*.h src/core/*.h)
# The library and the command go along where they can be built, that is where
# libpq's headers are; "make WITH_CLIENT=" leaves them out.
WITH_CLIENT ?= $(shell pkg-config --exists libpq libsodium 2>/dev/null && \
	echo yes)
ifneq ($(strip $(WITH_CLIENT)),)
all: build-client
install: install-client
uninstall: uninstall-client
endif
else
# A fresh machine: "make demo" and "make test" install what is missing here.
all install installcheck:
	@echo "$(PG_CONFIG) knows no PGXS: run scripts/deps, or set PG_CONFIG." >&2
	@exit 1
clean:
	rm -rf $(OBJS) $(MODULE_big).so $(EXTRA_CLEAN)
endif

# What follows needs no PGXS, installs nothing into PostgreSQL and touches no
# server of yours.

# The library and the command alone, for machines without a server.
client:
	@scripts/deps client
	@$(MAKE) -C client

build-client:
	@$(MAKE) -C client

# As another user than the one who builds: install what was built.
install-client uninstall-client:
	@$(MAKE) -C client $(@:-client=)

test:
	@test/run

demo demo-shell:
	@scripts/deps demo
	@scripts/$@

bench:
	@scripts/deps bench
	@bench/run

.PHONY: all install uninstall installcheck clean client build-client \
	install-client uninstall-client test demo demo-shell bench
