#!/bin/sh
# host.sh HOST...: write the configuration of corosync and of the broker for a cluster of these hosts.
#
# Run on each of them; `uname -n` says which one this is. The number at the end of a name is the host's: 10.77.0.1N towards
# the clients, 10.78.0.1N towards the cluster. VIP names the virtual address.
set -eu
vip=${VIP:-10.77.0.100}
credentials=/run/rack/credentials # of a secure lab: who may enter, and each host's lines about it
self=$(uname -n)

number() { echo "$1" | sed 's/.*[^0-9]//'; }

mkdir -p /etc/corosync /etc/qpidha /var/lib/qpidha /var/log/qpidha
nodes="" urls="" names="127.0.0.1 localhost
"
two="" recorder="" tls="" entrance="auth = no"
if [ -d "$credentials" ]; then tls="ssl:" entrance=$(cat "$credentials/$self.conf"); fi
if [ $# = 2 ]; then two="  two_node: 1" recorder="ha-recorder = manager"; fi
for host in "$@"; do
    i=$(number "$host")
    nodes="$nodes  node {
    name: $host
    nodeid: $i
    ring0_addr: 10.78.0.1$i
    ring1_addr: 10.77.0.1$i
  }
"
    urls="$urls,${tls}10.78.0.1$i:5672"
    names="${names}10.78.0.1$i $host
"
done
printf '%s' "$names" >/etc/hosts
echo "$self" >/etc/hostname

cat >/etc/corosync/corosync.conf <<END
totem {
  version: 2
  cluster_name: qpidha
  transport: knet
  crypto_cipher: none
  crypto_hash: none
  token: 1000
  token_coefficient: 0
  consensus: 1200
  join: 50
  link_mode: passive
}
nodelist {
$nodes}
quorum {
  provider: corosync_votequorum
$two
}
system {
  sched_rr: yes
  move_to_root_cgroup: no
}
logging {
  to_logfile: yes
  logfile: /var/log/corosync/corosync.log
  to_syslog: no
  to_stderr: no
  timestamp: hires
}
END

cat >/etc/qpidha/qpidha.conf <<END
ha-cluster = yes
ha-replicate = all
ha-brokers-url = ${urls#,}
ha-public-url = $tls$vip:5672
$entrance
advertised-address = ${tls}10.78.0.1$(number "$self"):5672
data-dir = /var/lib/qpidha
$recorder
link-maintenance-interval = 0.1
link-heartbeat-interval = 0.5
log-to-file = /var/log/qpidha/broker.log
log-enable = notice+
log-enable = debug+:ha
END
