"""Container nodes that follow moto's instances, whoever launched or ended them."""
