"""Instance groups: workers, controller and login nodes."""
