#!/bin/bash
# PID 1 of a lab host: init.sh FOLDER PYTHON HOST... ; the first HOST is this one, all of them are the cluster's.
#
# Its disk is FOLDER/disk, seen as overlays of /etc, /usr, /var/lib and /var/log, so that nothing reaches the machine
# below and everything survives a power cut; what is in memory does not. The rack plugs in eth0 and eth1.
set -euo pipefail
folder=$1 python=$2 name=$3
shift 3
here=$(cd "$(dirname "$0")" && pwd)

hostname "$name"
for tree in etc usr var/lib var/log; do
    mkdir -p "$folder/disk/$tree" "$folder/work/$tree"
    mount -t overlay overlay -o "lowerdir=/$tree,upperdir=$folder/disk/$tree,workdir=$folder/work/$tree" "/$tree"
done
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=1777,size=512m tmpfs /dev/shm
mkdir -m 1777 /run/lock
mkdir -m 1755 /run/resource-agents
mkdir -m 755 /run/rack
install -d -o hacluster -g haclient -m 750 /run/crm
mount --bind "$folder/../../rack" /run/rack

number=${name#ha}
ip link set lo up
for network in 0 1; do
    until ip link show "eth$network" >/dev/null 2>&1; do sleep .01; done
    ip addr add "10.$((77 + network)).0.$((10 + number))/24" brd + dev "eth$network"
    ip link set "eth$network" up
done

if [ -e /etc/qpidha/qpidha.conf ]; then
    # No machine boots in a tenth of a second, and Pacemaker counts on that: a fenced host that is back before the others have
    # dealt with its loss is waited for until a timer of a minute ends.
    sleep 3
else
    # A broker of the machine below is none of this host.
    rm -rf /var/lib/qpidha /var/log/qpidha
    install -m 755 "$here/sbin/fence_lab" /usr/sbin/fence_lab
    "$here/provision/commands.sh" "$python" "$here/../.."
    "$here/provision/host.sh" "$@"
    # The first configuration is an empty one that has what `setup` is going to say too (DC_DEADTIME of cluster.py): with
    # Pacemaker's 20 s nothing would happen for as long.
    pair='<nvpair id="cib-bootstrap-options-dc-deadtime" name="dc-deadtime" value="2s"/>'
    cibadmin --empty |
        sed "s|<crm_config/>|<crm_config><cluster_property_set id=\"cib-bootstrap-options\">$pair</cluster_property_set></crm_config>|" |
        install -o hacluster -g haclient -m 600 /dev/stdin /var/lib/pacemaker/cib/cib.xml
fi

export PCMK_logfile=/var/log/pacemaker/pacemaker.log
corosync -f &
until corosync-cmapctl -g totem.version >/dev/null 2>&1; do sleep .05; done
pacemakerd &
while :; do wait -n || sleep .2; done # everything that loses its parent is ours to bury
