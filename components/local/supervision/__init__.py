"""Keeps a program running after the deployment has ended: systemd user units, or supervisord."""
