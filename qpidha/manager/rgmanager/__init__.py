"""rgmanager: plan, and promotion by its services."""
