"""Pictures and pages made from finished runs."""
