"""MC-SGD (Mirzadeh et al., 2021)."""
