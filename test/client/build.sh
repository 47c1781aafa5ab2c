#!/bin/sh
# usage: build.sh CLIENT_FOLDER BUILD CC CLANG
#
# Builds and installs the library as a packager would, without a PostgreSQL
# server, and looks at what is there.  Speaks TAP.

client=$1 build=$2 cc=$3 clang=$4
count=0 failed=0
root=$build/root

check() {
	count=$((count + 1))
	if "$@" >"$build/check.log" 2>&1; then
		echo "ok $count - $what"
	else
		failed=1
		echo "not ok $count - $what"
		sed 's/^/# /' "$build/check.log"
	fi
}

same() {
	diff "$1" "$2"
}

cat >"$build/use.c" <<'END'
#include <keyright.h>
#include <stdio.h>
int
main(void)
{
	KeyrightOptions options;
	keyright_options_init(&options);
	return puts(keyright_version()) < 0;
}
END

what="builds without a warning of gcc"
check make -s -j2 -C "$client" BUILD="$build/gcc" CC="$cc" WERROR=1
if [ -n "$clang" ]; then
	what="builds without a warning of clang"
	check make -s -j2 -C "$client" BUILD="$build/clang" CC="$clang" WERROR=1
fi
what="installs to DESTDIR"
check make -s -C "$client" BUILD="$build/gcc" CC="$cc" WERROR=1 \
	DESTDIR="$root" prefix=/opt/keyright install

lib=$root/opt/keyright/lib
sed -n 's/^\t*\(extern.* \**\)*\(keyright_[a-z_]*\)(.*/\2/p' \
	"$client/keyright.h" | grep -v '^keyright_options_init$' |
	sort -u >"$build/declared"
nm -D --defined-only "$lib/libkeyright.so" |
	sed -n 's/.* T \([^@]*\).*/\1/p' | sort >"$build/shared"
nm -g --defined-only "$lib/libkeyright.a" |
	sed -n 's/.* [A-Z] \(.*\)/\1/p' | sort >"$build/static"
what="the shared library shows what the header declares"
check same "$build/declared" "$build/shared"
what="so does the static one"
check same "$build/declared" "$build/static"
what="the soname is libkeyright.so.0"
check sh -c "readelf -d '$lib/libkeyright.so' | grep -F '[libkeyright.so.0]'"
what="no data of the library can change"
check sh -c "! size -A '$lib/libkeyright.a' |
	grep -E '^\.(data|bss|tdata|tbss)(\.[a-z]+)? ' | grep -v '\.rel' |
	awk '\$2 > 0' | grep ."

PKG_CONFIG_PATH=$lib/pkgconfig
PKG_CONFIG_SYSROOT_DIR=$root
export PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR
dynamic=$(pkg-config --cflags --libs libkeyright)
static=$(pkg-config --static --cflags --libs libkeyright |
	sed 's/-lkeyright/-l:libkeyright.a/')
# shellcheck disable=SC2086
{
	what="a program links with the shared library"
	check "$cc" -Wall -Werror "$build/use.c" $dynamic -o "$build/use"
	what="and runs"
	check env LD_LIBRARY_PATH="$lib" "$build/use"
	what="another with the static one"
	check "$cc" -Wall -Werror "$build/use.c" $static -o "$build/use-static"
	what="and runs alone"
	check "$build/use-static"
}
what="uninstalling leaves no file"
check sh -c "make -s -C '$client' BUILD='$build/gcc' DESTDIR='$root' \
	prefix=/opt/keyright uninstall && ! find '$root' -type f | grep ."
echo "1..$count"
exit "$failed"
