#!/bin/sh
# cluster.sh VIP HOST...: make the cluster of these hosts, on one of them; the power switch should run, else nobody is fenced.
set -eu
vip=$1
shift
hosts=$(echo "$*" | tr ' ' ,)

there() {
    crm_mon -1 --output-as=xml 2>/dev/null | xmllint --xpath "count(//nodes/node[@online='true' and @unclean='false'])" - 2>/dev/null
}

[ -S /run/rack/power.sock ] || echo "the power switch does not run: start it, 'python3 -m vagrant.power'; until then no host is fenced" >&2
echo "waiting for $hosts"
patience=120
until [ "$(there)" = $# ]; do
    patience=$((patience - 1))
    if [ $patience -eq 0 ]; then
        echo "$(uname -n) does not see $hosts online: look at 'crm_mon -1' and /var/log/corosync/corosync.log" >&2
        exit 1
    fi
    sleep 1
done
fence="power fence_lab pcmk_host_list=$hosts pcmk_host_check=static-list op monitor interval=30s"
qpid-ha pacemaker setup --apply --nodes "$hosts" --vip "$vip/24" --fence "$fence" --dc-deadtime 2
