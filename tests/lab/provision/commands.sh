#!/bin/sh
# commands.sh PYTHON [SOURCE]: put qpidhad, qpid-ha and qpidha-watch of the environment that PYTHON belongs to into /usr/bin,
# taking the package from the folder SOURCE if given, and install the OCF agents.
set -eu
python=$1 source=${2:-}

command() {
    {
        echo "#!$python"
        echo "import sys"
        if [ -n "$source" ]; then echo "sys.path.insert(0, '$(cd "$source" && pwd)')"; fi
        echo "from $2 import main"
        echo "sys.exit(main())"
    } >"/usr/bin/$1"
    chmod 755 "/usr/bin/$1"
}

command qpidhad qpidha.runtime.daemon
command qpid-ha qpidha.cli.main
command qpidha-watch qpidha.manager.pacemaker.watch
qpid-ha pacemaker install-agents
