"""What is watched: alerts and recording rules, and dashboards, as code."""
