#!/bin/sh
# provision.sh HOST...: make this machine one of the cluster's hosts, by the scripts that make the hosts of tests/lab.
# A second run does no harm: it brings a changed source and configuration into effect.
set -eu
source=$(cd "$(dirname "$0")/.." && pwd)
cd "$source"

echo "Debian's packages"
tests/lab/provision/packages.sh
echo "Python environment from requirements.lock; compiling python-qpid-proton takes minutes the first time"
.ci/setup demo
echo "commands, agents and configuration"
tests/lab/provision/commands.sh "$source/.venv/bin/python"
tests/lab/provision/host.sh "$@"

# The power switch (power.py) comes in over ssh as root and lays its socket where the fence agent looks for it.
install -m 755 tests/lab/sbin/fence_lab /usr/sbin/fence_lab
echo 'd /run/rack 0700 root root' >/etc/tmpfiles.d/qpidha-lab.conf
systemd-tmpfiles --create qpidha-lab.conf
install -m 700 -d /root/.ssh
install -m 600 ~vagrant/.ssh/authorized_keys /root/.ssh/authorized_keys
printf 'StreamLocalBindUnlink yes\nPermitRootLogin prohibit-password\n' >/etc/ssh/sshd_config.d/qpidha-lab.conf
systemctl reload ssh

systemctl --quiet enable corosync pacemaker
systemctl restart corosync pacemaker
