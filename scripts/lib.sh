# shellcheck shell=bash
# What the scripts share.  Sourced, never run.
#
# Two rules hold everywhere: nothing is installed into the system's PostgreSQL
# and no cluster is touched that these scripts did not make; and servers run
# as an unprivileged user, because initdb refuses root.

set -euo pipefail

# Also read by the scripts that source this file.
# shellcheck disable=SC2034
root_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)

die() {
	printf '%s: %s\n' "${0##*/}" "$*" >&2
	exit 1
}

# Prints the comment at the head of the calling script: its usage.
usage() {
	sed -n '2,/^$/s/^# \{0,1\}//p' "$0"
}

# A PGHOST or PGUSER of the caller's must not lead a test to a server of
# theirs, nor may the make that called us bend the makes that we call.
clean_environment() {
	local name
	for name in "${!PG@}"; do
		[[ $name == PG_* ]] || unset "$name"
	done
	unset MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL MAKEFILES
}

# The major version to install and to test with: the one that the Debian
# release has, unless PG_MAJOR says otherwise.
pg_major() {
	local release=12
	if [[ -z ${PG_MAJOR:-} && -r /etc/os-release ]]; then
		# shellcheck disable=SC1091
		release=$(. /etc/os-release && echo "${VERSION_ID:-12}")
	fi
	case $release in
		13) echo "${PG_MAJOR:-17}" ;;
		*) echo "${PG_MAJOR:-15}" ;;
	esac
}

# The pg_config to build with: PG_CONFIG, else the package's, else the PATH's.
pg_config_path() {
	local packaged
	packaged=/usr/lib/postgresql/$(pg_major)/bin/pg_config
	if [[ -n ${PG_CONFIG:-} && $PG_CONFIG != pg_config ]]; then
		command -v "$PG_CONFIG" || die "PG_CONFIG=$PG_CONFIG is no program"
	elif [[ -x $packaged ]]; then
		echo "$packaged"
	else
		command -v pg_config ||
			die "no pg_config: run scripts/deps, or set PG_CONFIG"
	fi
}

# The user that servers run as.
server_user() {
	if ((EUID != 0)); then
		id -un
	elif id -u postgres >/dev/null 2>&1; then
		echo postgres
	else
		echo nobody
	fi
}

# setpriv and not runuser: it executes the command in its own place, so that
# a signal sent to it arrives and a trap has the time it needs.
as_server_user() {
	local user
	if ((EUID == 0)); then
		user=$(server_user)
		setpriv --reuid="$user" --regid="$(id -g "$user")" --init-groups "$@"
	else
		"$@"
	fi
}

# copy_sources DIR: the working tree as it is, without what a build left in
# it.  What vanished from the tree vanishes from the copy; objects in the copy
# stay, so that a second build is short.
copy_sources() {
	local to=$1
	mkdir -p "$to"
	find "$to" -type f ! -name '*.o' ! -name '*.so' ! -name '.made-with' -delete
	tar -C "$root_dir" --exclude=./.git --exclude=./build --exclude=./results \
		--exclude=./output_iso --exclude=./tmp_check --exclude=./log \
		--exclude='*.o' --exclude='*.so' --exclude='*.bc' \
		--exclude='*.gcno' --exclude='*.gcda' \
		--no-same-owner -cf - . |
		tar -C "$to" --no-same-owner -xf -
	chmod -R a+rX "$to"
}
