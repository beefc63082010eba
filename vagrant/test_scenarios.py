"""What is played on the hosts of tests/lab, here on virtual machines."""

from tests.lab.test_scenarios import *  # noqa: F403
