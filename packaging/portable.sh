#!/usr/bin/env bash
# quire and quire-bench for every Linux with glibc 2.28 or later, as a tarball and as a wheel for pip, in OUT. The work is kept in
# build/portable-ARCH.
#
#   packaging/portable.sh ARCH OUT      ARCH: x86_64 or aarch64
set -euo pipefail
out=$(realpath -m "$2")
cd "$(dirname "$0")/.."
export QUIRE_PORTABLE_ARCH=$1
case $1 in x86_64) debian=amd64 ;; aarch64) debian=arm64 ;; *) echo "portable.sh: x86_64 or aarch64" >&2; exit 2 ;; esac
work=build/portable-$1
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
    SOURCE_DATE_EPOCH=$(sed -n 's/.*set(ENV{SOURCE_DATE_EPOCH} \([0-9]*\))/\1/p' packaging/options.cmake)
fi
export SOURCE_DATE_EPOCH

packaging/sysroot.sh "$work/root" "$debian"
cmake -S . -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_TOOLCHAIN_FILE="$PWD/packaging/portable.cmake" \
    -DQUIRE_TESTS=OFF -DQUIRE_EXAMPLES=OFF -DQUIRE_CUDA=OFF >/dev/null
cmake --build "$work/build"

version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$work/build/CMakeCache.txt")
name=quire-$version-linux-$1
rm -rf "$work/stage"
for component in quire bench; do
    DESTDIR=$work/stage cmake --install "$work/build" --prefix /usr --strip --component $component >/dev/null
done
mv "$work/stage/usr" "$work/stage/$name"
rm -r "$work/stage/$name/lib" "$work/stage/$name/share/zsh" # which have paths of the Debian package, as /etc has
for library in libmicrohttpd libjansson libuv1 libpcre2 libutf8proc; do
    cp "$work/root/usr/share/doc/$library-dev/copyright" "$work/stage/$name/share/doc/quire/$library.copyright"
done
find "$work/stage/$name" -exec chmod u=rwX,go=rX {} +
mkdir -p "$out"
python3 packaging/wheel.py "$work/stage/$name" "$version" "$out" # refuses what an older system would not start
tar -C "$work/stage" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -c "$name" | gzip -9n >"$out/$name.tar.gz"
echo "$out/$name.tar.gz"
