#!/bin/sh
# build.sh [OUTDIR]: builds the Debian packages of this tree into OUTDIR (default: the folder it is called in). The tree is copied to a scratch folder, with
# contrib/debian as its debian/, and stays as it is. DEB_BUILD_OPTIONS as for dpkg-buildpackage: "nocheck" leaves out the tests, "parallel=2" uses two cores.
# What it needs: apt-get install build-essential debhelper dh-apparmor fakeroot, and what contrib/debian/control lists under Build-Depends.
set -eu
mkdir -p "${1:-.}"
out=$(realpath "${1:-.}")
cd "$(dirname "$0")/../.."
w=$(mktemp -d "${TMPDIR:-/tmp}/twofold-deb.XXXXXX")
trap 'rm -rf "$w"' EXIT
trap 'exit 1' INT TERM
mkdir "$w/twofold"
tar -cf - --exclude=./.git --exclude='./build*' --exclude=__pycache__ --exclude='*.swp' . | tar -C "$w/twofold" -xf -
cp -r contrib/debian "$w/twofold/debian"
rm "$w/twofold/debian/build.sh"
(cd "$w/twofold" && dpkg-buildpackage -us -uc -b) > "$w/log" 2>&1 || { tail -n 40 "$w/log" >&2; exit 1; }
mv "$w"/*.deb "$w"/*.changes "$w"/*.buildinfo "$out/"
ls "$out"/twofold*_"$(dpkg-parsechangelog -l contrib/debian/changelog -S Version)"_*.deb
