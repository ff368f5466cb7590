"""moto as this machine's AWS, with what it lacks filled in before and after it."""
