"""What every service shares and no service owns; holds no word of the domain."""
