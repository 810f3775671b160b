#!/usr/bin/env bash
# What packaging/portable.sh compiles against, unpacked into FOLDER: the C library of Debian 11, so that no symbol is younger than it,
# and of Debian 12 the libraries that are linked statically. libmicrohttpd is compiled here from Debian's source, since the packaged
# archive wants GnuTLS, which has no static form. apt runs with folders of its own; needs no root.
#
#   packaging/sysroot.sh FOLDER ARCH      ARCH: amd64 or arm64, as Debian has it
#
#   DEBIAN_MIRROR   default http://deb.debian.org/debian
set -euo pipefail
root=$(realpath -m "$1")
arch=$2
case $arch in amd64) triplet=x86_64-linux-gnu ;; arm64) triplet=aarch64-linux-gnu ;; *) echo "sysroot.sh: amd64 or arm64" >&2; exit 2 ;; esac
here=$(dirname "$(realpath "$0")")
script=$(cat "$0" "$here/older_math.c" | sha256sum)
[ "$(cat "$root/script" 2>/dev/null)" != "$script" ] || exit 0
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
keys=/usr/share/keyrings/debian-archive-keyring.gpg
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
run() { "$@" >"$work/log" 2>&1 || { tail -n 30 "$work/log" >&2; exit 1; }; }

chmod 755 "$work" # as root, apt fetches as another user
mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial" "$work/debs"
[ "$(id -u)" -ne 0 ] || chown _apt "$work/debs" "$work/state/lists/partial"
: >"$work/status"
for line in "deb bullseye" "deb bookworm" "deb-src bookworm"; do
    echo "${line% *} [signed-by=$keys] $mirror ${line#* } main"
done >"$work/sources"
apt=(apt-get -q -o "APT::Architecture=$arch" -o "APT::Architectures=$arch" -o "Dir::Etc::sourcelist=$work/sources" -o Dir::Etc::sourceparts=-
     -o "Dir::State=$work/state" -o "Dir::State::status=$work/status" -o "Dir::Cache=$work/cache")
run "${apt[@]}" update
cd "$work/debs"
run "${apt[@]}" download libc6/bullseye libc6-dev/bullseye linux-libc-dev/bookworm libjansson-dev/bookworm libuv1-dev/bookworm \
    libpcre2-dev/bookworm libutf8proc-dev/bookworm
run "${apt[@]}" source --download-only libmicrohttpd/bookworm
rm -rf "$root"
mkdir -p "$root"
for deb in *.deb; do
    dpkg-deb -x "$deb" "$root"
done
find "$root" -type l -lname '/*' | while read -r link; do # the host's files, where they are followed from outside
    ln -srfn "$root$(readlink "$link")" "$link"
done
ln -s libuv_a.a "$root/usr/lib/$triplet/libuv.a" # the name that its .pc asks for

run dpkg-source -x libmicrohttpd_*.dsc source
cd source
# The program answers in its place (server/http/unreadable.h), and calls it.
sed -i 's/^MHD_queue_response (/MHD_queue_response_inside (/' src/microhttpd/connection.c
run ./configure --host="$triplet" --prefix=/usr --libdir="/usr/lib/$triplet" --disable-shared --with-pic --disable-https --disable-curl \
    --disable-doc --disable-examples --disable-postprocessor --disable-dauth --disable-bauth \
    CC="$triplet-gcc --sysroot=$root -B$root/usr/lib/$triplet -isystem $root/usr/include/$triplet -isystem $root/usr/include" \
    CFLAGS="-O2 -fstack-protector-strong -D_FORTIFY_SOURCE=2 -ffile-prefix-map=$work=."
run make -C src/include install DESTDIR="$root"
run make -C src/microhttpd install DESTDIR="$root"
run make install-pkgconfigDATA DESTDIR="$root"
install -Dm644 COPYING "$root/usr/share/doc/libmicrohttpd-dev/copyright"
"$triplet-gcc" -O2 -fPIC -c "$here/older_math.c" -o older_math.o
"$triplet-ar" rcD "$root/usr/lib/$triplet/libolder_math.a" older_math.o
echo "$script" >"$root/script"
