#!/bin/sh
# install-packages.sh [PACKAGE...]: what twofold needs to build, and the packages named, on Debian 12 or newer; only what is missing. Needs root for that.
set -eu
want="build-essential meson ninja-build pkg-config libfuse3-dev fuse3 libsodium-dev librsync-dev libsqlite3-dev $*"
missing=
for p in $want; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing="$missing $p"
done
[ -n "$missing" ] || exit 0
[ "$(id -u)" = 0 ] || { echo "These packages are missing, and only root can install them:$missing" >&2; exit 1; }
echo "installing:$missing"
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086
apt-get install -y -q --no-install-recommends $missing > /tmp/twofold-apt.$$ 2>&1 || {
    apt-get update -q > /tmp/twofold-apt.$$ 2>&1 && apt-get install -y -q --no-install-recommends $missing > /tmp/twofold-apt.$$ 2>&1
} || { cat /tmp/twofold-apt.$$ >&2; rm -f /tmp/twofold-apt.$$; exit 1; }
rm -f /tmp/twofold-apt.$$
