"""How jobs wait for GPUs: flavours, queues, cohorts, priorities, topology."""
