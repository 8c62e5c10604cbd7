"""What people run: typed settings, blueprints, the falaj command."""
