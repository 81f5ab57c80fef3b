"""Charts over one time axis."""
