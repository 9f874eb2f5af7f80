"""What environments whose episodes happen in a session have in common."""
