#!/bin/sh
# packages.sh [PACKAGE...]: install what a cluster host needs from Debian 12, and what is named. As root; services are not started by
# it: what starts them does so later.
set -eu

packages="corosync pacemaker pacemaker-cli-utils pcs resource-agents iproute2 nftables procps libxml2-utils $*"
missing=""
for package in $packages; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" -ne 0 ]; then
    echo "packages: these are missing:$missing; install them as root, with services kept off (policy-rc.d)" >&2
    exit 1
fi

policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
    trap 'rm -f $policy' EXIT
    printf '#!/bin/sh\nexit 101\n' >$policy
    chmod 755 $policy
fi
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 # a list of words
apt-get -qq install -y --no-install-recommends $missing </dev/null >/dev/null 2>&1 || {
    apt-get -qq update </dev/null >&2
    # shellcheck disable=SC2086
    apt-get -qq install -y --no-install-recommends $missing </dev/null >&2
}
