"""qpidha: an active-passive, hot-standby AMQP 1.0 message broker cluster."""
