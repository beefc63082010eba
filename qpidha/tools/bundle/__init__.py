"""The support bundle: what is known of brokers, in one file that can be handed to somebody else."""
