"""A synthetic world of people, told in passages and asked about: what the twins learn and are tested on."""
