"""What happens to an update before it leaves a client. Arithmetic only; engines call it."""
