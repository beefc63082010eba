"""Pacemaker: plan, set-up, state, score and the watch beside a broker."""
